"""`isogloss check`: what the service would refuse to start with, all of it at once, and what is seldom meant."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from ext_proc import certificates
from ext_proc import config as configuration
from ext_proc.app import encoder
from ext_proc.config import Config
from ext_proc.errors import IsoglossError
from ext_proc.sources.discovery import FileNodes, StaticNodes
from ext_proc.sources.geodb import GeoDatabase
from ext_proc.sources.places import Places
from ext_proc.sources.redis_sessions import RedisSessions
from models import bundle
from models.embedder import fingerprint
from models.errors import ModelError
from models.weights import verify
from policy.types import Node


class Found(NamedTuple):
    """What is wrong, and what is only odd."""

    mistakes: tuple[str, ...]
    warnings: tuple[str, ...]


def check(config: Config) -> Found:
    """Read what *config* points to: nodes, databases, bundle, weights, certificates.

    No socket is opened and no encoder loaded.
    """
    mistakes = _ports(config)
    warnings = configuration.warnings(config)

    def tried(read: Callable[[], object]) -> None:
        try:
            read()
        except (IsoglossError, ModelError) as exc:
            mistakes.append(str(exc))

    def nodes() -> None:
        source = FileNodes(config.fleet.file) if config.fleet.file else StaticNodes(config.fleet.nodes)
        warnings.extend(_pools(config, source.nodes()))

    def intents() -> None:
        active = bundle.load(config.bundle or bundle.DEFAULT)
        known = active.names
        for name, pool in config.rules.pools.items():
            warnings.extend(
                f"rules.pools.{name}: the bundle has no intent {intent!r}; it has {', '.join(known)}"
                for intent in pool.intents
                if intent not in known
            )
        settings = active.encoder(encoder(config.encoder))
        active.require(fingerprint(verify(settings.model), settings))

    tried(nodes)
    for path in config.places.databases:
        tried(lambda path=path: GeoDatabase(path).close())  # type: ignore[misc]
    if not mistakes:
        tried(lambda: Places(config.places))
    tried(intents)
    if config.sessions.store == "redis":
        tried(lambda: RedisSessions(config.sessions))
    if config.server.tls is not None:
        tried(lambda tls=config.server.tls: certificates.read(tls))  # type: ignore[misc]
    return Found(tuple(mistakes), tuple(warnings))


def _ports(config: Config) -> list[str]:
    """Envoy and service on one machine, as the generated Envoy expects them, need ports of their own."""
    return [
        f"envoy.{theirs} ({getattr(config.envoy, theirs)}) is one of the ports that server.{ours} takes"
        for theirs in ("port", "admin_port")
        for ours, ports in config.server.ports().items()
        if getattr(config.envoy, theirs) in ports
    ]


def _pools(config: Config, nodes: Iterable[Node]) -> list[str]:
    there = {node.pool for node in nodes}
    if not there:
        return ["fleet: no nodes, every request will be answered 503"]
    out = [f"rules.pools.{name}: no node is in it" for name in config.rules.pools if name not in there]
    if config.rules.general not in there | config.rules.pools.keys():
        out.append(f"rules.general: no node is in pool {config.rules.general!r}; there are {', '.join(sorted(there))}")
    return out
