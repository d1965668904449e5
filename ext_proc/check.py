"""`isogloss check`: what the service would refuse to start with, all of it at once, and what is seldom meant."""

from collections.abc import Callable
from typing import NamedTuple

from ext_proc import config as configuration
from ext_proc.config import Config
from ext_proc.errors import IsoglossError
from ext_proc.sources.discovery import FileNodes, StaticNodes
from ext_proc.sources.geodb import GeoDatabase
from ext_proc.sources.places import Places
from models import bundle
from models.errors import ModelError


class Found(NamedTuple):
    """What is wrong, and what is only odd."""

    mistakes: tuple[str, ...]
    warnings: tuple[str, ...]


def check(config: Config) -> Found:
    """Read what *config* points to: nodes, databases, bundle. No socket is opened and no encoder loaded."""
    mistakes: list[str] = []
    warnings = configuration.warnings(config)

    def tried(read: Callable[[], object]) -> None:
        try:
            read()
        except (IsoglossError, ModelError) as exc:
            mistakes.append(str(exc))

    def intents() -> None:
        known = bundle.load(config.bundle or bundle.DEFAULT).names
        for name, pool in config.rules.pools.items():
            warnings.extend(
                f"rules.pools.{name}: the bundle has no intent {intent!r}; it has {', '.join(known)}"
                for intent in pool.intents
                if intent not in known
            )

    tried(lambda: FileNodes(config.fleet.file).nodes() if config.fleet.file else StaticNodes(config.fleet.nodes))
    for path in config.places.databases:
        tried(lambda path=path: GeoDatabase(path).close())  # type: ignore[misc]
    if not mistakes:
        tried(lambda: Places(config.places))
    tried(intents)
    return Found(tuple(mistakes), tuple(warnings))
