"""Which nodes there are: listed in the configuration, or in a file read again when it changes."""

import asyncio
import ipaddress
import logging
import re
import socket
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

from ext_proc.errors import ConfigError
from ext_proc.sources.watched import WatchedFile
from ext_proc.yamlfile import decode
from policy.types import Fleet, Node

log = logging.getLogger(__name__)

POLL_S = 0.5
_PORT = re.compile("[0-9]{1,5}")


class Discovery(Protocol):
    """Who can answer."""

    def nodes(self) -> tuple[Node, ...]:
        """The nodes now. Raises ConfigError when there is no telling."""
        ...

    async def watch(self, changed: Callable[[tuple[Node, ...]], object]) -> None:
        """Call *changed* with every new set of nodes, for ever."""
        ...


class StaticNodes:
    """The nodes of isogloss.yaml."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self._nodes = valid(nodes)

    def nodes(self) -> tuple[Node, ...]:
        return self._nodes

    async def watch(self, changed: Callable[[tuple[Node, ...]], object]) -> None:
        await asyncio.Event().wait()


class FileNodes:
    """A YAML list of nodes. A new file that is wrong is logged, once, and changes nothing."""

    def __init__(self, path: Path, poll_s: float = POLL_S) -> None:
        self._path = path
        self._poll_s = poll_s
        self._file = WatchedFile(path)
        self.refused = 0
        """New files that were wrong."""

    def nodes(self) -> tuple[Node, ...]:
        try:
            text = self._path.read_bytes()
        except OSError as exc:
            raise ConfigError(f"fleet.file: cannot read {self._path}: {exc.strerror}") from exc
        try:
            return valid(decode(text, tuple[Node, ...]))
        except ConfigError as exc:
            raise ConfigError(f"{self._path}: {exc}") from exc

    async def watch(self, changed: Callable[[tuple[Node, ...]], object]) -> None:
        while True:
            await asyncio.sleep(self._poll_s)
            if not self._file.changed():
                continue
            try:
                nodes = self.nodes()
            except ConfigError as exc:
                self.refused += 1
                log.warning("fleet: keeping the nodes we have: %s", exc)
                continue
            log.info("fleet: %d nodes from %s", len(nodes), self._path)
            changed(nodes)


def valid(nodes: Iterable[Node]) -> tuple[Node, ...]:
    """The nodes, each address once and spelled as Envoy spells it. Raises ConfigError naming the wrong one."""
    out = tuple(nodes)
    for node in out:
        _check(node.address)
    try:
        Fleet(out)
    except ValueError as exc:
        raise ConfigError(f"fleet: {exc}") from None
    return out


def _check(address: str) -> None:
    """`ip:port`, IPv6 in brackets and compressed: Envoy finds a host by these very bytes."""
    host, _, port = address.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    wanted = "expected ip:port, as in 10.0.0.1:8000 or [fd00::1]:8000"
    if not _PORT.fullmatch(port) or not 0 < int(port) < 65536:
        raise ConfigError(f"fleet: address {address!r} has no port: {wanted}")
    try:
        ip = ipaddress.ip_address(bare)
    except ValueError:
        raise ConfigError(f"fleet: address {address!r}: {wanted}; a host name is not an address") from None
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.scope_id is not None:
            raise ConfigError(f"fleet: address {address!r}: a zone means nothing to another machine")
        # As Envoy does; Python's own spelling of IPv4-mapped addresses differs before 3.13.
        right = f"[{socket.inet_ntop(socket.AF_INET6, ip.packed)}]:{int(port)}"
    else:
        right = f"{ip}:{int(port)}"
    if right != address:
        raise ConfigError(f"fleet: address {address!r} must be spelled {right!r}, as Envoy spells it")
