"""The decision in words, one fact each."""

import math
from collections.abc import Iterator, Mapping

from policy.affinity import Stay
from policy.types import Bools
from policy.view import View


def meaning(view: View) -> Iterator[str]:
    """What the request is about, and the pool that follows."""
    read = view.features.intent
    if view.intent is not None:
        how = f"{read.confidence:.2f}" if read is not None and read.name == view.intent else "from its session"
        yield f"intent {view.intent} ({how}) → pool {view.pool}"
    elif read is not None:
        yield f"intent unsure (nearest {read.nearest}, {read.confidence:.2f}) → pool {view.pool}"


def place(view: View, best: int) -> Iterator[str]:
    """Where the client is, and how far the node."""
    known = view.features.place
    if known is None:
        return
    node, km = view.fleet.nodes[best], view.km(best)
    far = "" if math.isnan(km) else f": {km:.0f} km to {node.region or node.address}"
    yield f"place by {known.source}{far}"


def absent(view: View, dropped: Mapping[str, Bools], room: bool) -> Iterator[str]:
    """What was left out, and what was not known."""
    for why, mask in dropped.items():
        yield f"dropped by {why}: {int(mask.sum())}"
    for name in view.features.missing:
        yield f"no answer in time: {name}"
    if not room:
        yield "no node has headroom"


def session(view: View, stay: Stay) -> Iterator[str]:
    """What the session had to say."""
    if stay.node is not None:
        yield "session stays" + (" (retry)" if view.retry else "")
    if stay.released is not None:
        yield f"session released: {stay.released}"
    if view.conflict:
        yield "context version is older than the session's"
