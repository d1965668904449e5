"""A gateway's subset hint: the addresses it allows, in the spelling the fleet knows them by."""

import ipaddress
import socket
from collections.abc import Iterable
from functools import lru_cache


def listed(texts: Iterable[str]) -> tuple[str, ...]:
    """`ip:port`, or `ip` for all its ports; commas part addresses in every text. What is no address stays as it is:
    nobody has it."""
    return tuple(_spelled(entry) for text in texts for part in text.split(",") if (entry := part.strip()))


def _spelled(entry: str) -> str:
    return _ipv6(entry) if entry.count(":") > 1 and len(entry) <= 64 else entry


@lru_cache(maxsize=4096)
def _ipv6(entry: str) -> str:
    """In brackets, and as Envoy writes it."""
    host, bracket, port = entry.removeprefix("[").partition("]")
    try:
        ip = ipaddress.IPv6Address(host)
    except ValueError:
        return entry
    if ip.scope_id is not None or bool(bracket) != entry.startswith("["):
        return entry
    return f"[{socket.inet_ntop(socket.AF_INET6, ip.packed)}]{port}"
