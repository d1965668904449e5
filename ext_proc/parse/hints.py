"""What headers ask for: a client's wishes, a gateway's restrictions."""

from collections.abc import Mapping

from ext_proc import names
from ext_proc import subset as subsets
from policy.types import Hint

KEYS = frozenset({"zone", "region", "node", "pool", "tier", "avoid"})
MOST = 16


def read(header: str) -> tuple[tuple[Hint, ...], int]:
    """`zone=us-east-1a, node=10.0.0.1:8000;require`; the second value counts what was not understood."""
    if not header:
        return (), 0
    entries = [entry.strip() for entry in header[:4096].split(",") if entry.strip()]
    out = []
    for entry in entries[:MOST]:
        wish, *parameters = (part.strip() for part in entry.split(";"))
        key, equals, value = wish.partition("=")
        key, value = key.strip().lower(), value.strip()
        if key in KEYS and equals and 0 < len(value) <= 256:
            out.append(Hint(key, value, "require" in parameters))
    return tuple(out), len(entries) - len(out)


def subset(headers: Mapping[str, str]) -> tuple[str, ...] | None:
    """The addresses a gateway allows by header; None: it says nothing."""
    value = headers.get(names.SUBSET)
    return None if value is None else subsets.listed((value,))


def tenants(header: str) -> tuple[str, ...]:
    """All that are named: a client that adds a line of its own to the gateway's does not make that one unsaid."""
    return tuple(entry.strip() for entry in header.split(",") if entry.strip())
