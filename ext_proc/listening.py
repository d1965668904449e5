"""Where the ext_proc service listens: a TCP port, with TLS or without, or a Unix socket."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
from grpc_health.v1 import health
from grpc_reflection.v1alpha import reflection

from ext_proc import names
from ext_proc.certificates import Certificates
from ext_proc.config import Server
from ext_proc.errors import ConfigError


def bind(front: grpc.aio.Server, server: Server, worker: int, certificates: Certificates | None) -> str:
    """Open the worker's place on *front*, which says by reflection what it is; gives the place in words.

    Raises ConfigError where somebody else is there. Reflection names services only: Envoy's messages live in a pool
    of ours under our names, and whoever can speak the protocol has them already.
    """
    reflection.enable_server_reflection((names.SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME), front)
    if server.socket is None:
        where = f"{server.host}:{server.port + worker}"
        with named("port", where):
            _open(front, where, certificates)
        return where
    path = server.socket_of(worker)
    _nobody_there(path)
    # Not chmod afterwards: nobody else shall get in in between.
    before = os.umask(0o777 & ~int(server.socket_mode, 8))
    try:
        with named("socket", str(path)):
            _open(front, f"unix:{path}", certificates)
    finally:
        os.umask(before)
    return str(path)


@contextmanager
def named(setting: str, where: str) -> Iterator[None]:
    """A place that cannot be had becomes a ConfigError that names the setting."""
    try:
        yield
    except (RuntimeError, OSError) as exc:  # gRPC's word for it, and everybody else's
        raise ConfigError(f"server.{setting}: cannot listen on {where}; is somebody else there? ({exc})") from exc


def _open(front: grpc.aio.Server, where: str, certificates: Certificates | None) -> None:
    if certificates is None:
        front.add_insecure_port(where)
    else:
        front.add_secure_port(where, certificates.credentials())


def _nobody_there(path: Path) -> None:
    """gRPC takes away whatever socket lies there: right for one left behind, wrong for one in use."""
    with socket.socket(socket.AF_UNIX) as sock:
        try:
            sock.connect(str(path))
        except OSError:
            return
    raise ConfigError(f"server.socket: another process listens on {path}")
