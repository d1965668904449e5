"""Small words of Envoy's configuration that listener and clusters share."""

import ipaddress
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any as Anything

import betterproto2
from envoy_data_plane.envoy.config.core.v3 import (
    Address,
    HeaderValue,
    HeaderValueOption,
    HeaderValueOptionHeaderAppendAction,
    Pipe,
    SocketAddress,
    TypedExtensionConfig,
)
from envoy_data_plane.google.protobuf import Any, Struct

PODS = "pods"
WORKERS = "isogloss"
NEVER = timedelta(0)
"""Envoy's way to switch a timeout off."""


def seconds(value: float) -> timedelta:
    """*value* seconds as Envoy wants them."""
    return timedelta(seconds=value)


def address(host: str, port: int) -> Address:
    """A TCP address; an IPv6 *host* comes without brackets."""
    return Address(socket_address=SocketAddress(address=host, port_value=port))


def pipe(path: Path) -> Address:
    """A Unix socket."""
    return Address(pipe=Pipe(path=str(path)))


def is_ip(host: str) -> bool:
    """An address, and no name that must be looked up."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def extension(name: str, message: betterproto2.Message) -> TypedExtensionConfig:
    """An extension by name, with its own typed configuration."""
    return TypedExtensionConfig(name=name, typed_config=Any.pack(message))


def overwrite(name: str, value: str) -> HeaderValueOption:
    """The header *name* becomes *value*; an empty value leaves it out."""
    return HeaderValueOption(
        header=HeaderValue(key=name, value=value),
        append_action=HeaderValueOptionHeaderAppendAction.OVERWRITE_IF_EXISTS_OR_ADD,
    )


def struct(value: Mapping[str, Anything]) -> Struct:
    """Plain JSON as a protobuf Struct."""
    made: Struct = Struct.from_dict(value)
    return made
