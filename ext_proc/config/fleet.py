"""Which nodes there are."""

from pathlib import Path

from msgspec import Struct

from ext_proc.config.units import Seconds
from policy.types import Node


class FleetConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Which nodes there are: listed here, or in a file of their own."""

    nodes: tuple[Node, ...] = ()
    file: Path | None = None
    """YAML: a list of nodes, read again when it changes."""
    scrape_s: Seconds = 1.0
    scrape_timeout_s: Seconds = 0.8

    def __post_init__(self) -> None:
        if self.nodes and self.file:
            raise ValueError("fleet: give nodes or file, not both")
