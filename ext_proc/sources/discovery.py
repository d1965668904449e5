"""Which nodes there are: listed in the configuration, or in a file read again when it changes."""

import asyncio
import ipaddress
import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

from ext_proc import config
from ext_proc.errors import ConfigError
from policy.types import Fleet, Node

log = logging.getLogger(__name__)

POLL_S = 1.0


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
    """A YAML list of nodes. A new file that is wrong changes nothing: it is logged, and the last good one stands."""

    def __init__(self, path: Path, poll_s: float = POLL_S) -> None:
        self._path = path
        self._poll_s = poll_s
        self._stamp: object = None
        self.refused = 0
        """New files that were wrong."""

    def nodes(self) -> tuple[Node, ...]:
        try:
            self._stamp = self._now()
            text = self._path.read_bytes()
        except OSError as exc:
            raise ConfigError(f"fleet.file: cannot read {self._path}: {exc.strerror}") from exc
        try:
            return valid(config.decode(text, tuple[Node, ...]))
        except ConfigError as exc:
            raise ConfigError(f"{self._path}: {exc}") from exc

    async def watch(self, changed: Callable[[tuple[Node, ...]], object]) -> None:
        while True:
            await asyncio.sleep(self._poll_s)
            try:
                if self._now() == self._stamp:
                    continue
                nodes = self.nodes()
            except (OSError, ConfigError) as exc:
                self._complain(exc)
                continue
            log.info("fleet: %d nodes from %s", len(nodes), self._path)
            changed(nodes)

    def _now(self) -> object:
        stat = self._path.stat()
        return stat.st_mtime_ns, stat.st_size, stat.st_ino

    def _complain(self, exc: Exception) -> None:
        stamp = ("refused", str(exc))
        if not isinstance(exc, OSError) or self._stamp != stamp:
            self.refused += 1
            log.warning("fleet: keeping the nodes we have: %s", exc)
        if isinstance(exc, OSError):
            self._stamp = stamp


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
    host, colon, port = address.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    wanted = "expected ip:port, as in 10.0.0.1:8000 or [fd00::1]:8000"
    try:
        ip = ipaddress.ip_address(bare)
    except ValueError:
        raise ConfigError(f"fleet: address {address!r}: {wanted}; a host name is not an address") from None
    if not colon or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise ConfigError(f"fleet: address {address!r}: {wanted}")
    right = f"[{ip}]:{int(port)}" if ip.version == 6 else f"{ip}:{int(port)}"
    if right != address:
        raise ConfigError(f"fleet: address {address!r} must be spelled {right!r}, as Envoy spells it")
