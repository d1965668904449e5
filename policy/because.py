"""The decision in words, one fact each."""

import math
from collections.abc import Iterator, Mapping

from policy import residency
from policy.affinity import Stay
from policy.types import Bools
from policy.view import View


def all_of(view: View, best: int, dropped: Mapping[str, Bools], stay: Stay) -> tuple[str, ...]:
    """Every reason for *best*, in the order in which it came up."""
    return (
        *_meaning(view),
        *_place(view, best),
        *_residency(view),
        *_absent(view, best, dropped),
        *_session(view, stay),
    )


def _meaning(view: View) -> Iterator[str]:
    """What the request is about, and the pool that follows."""
    read = view.features.intent
    if view.intent is not None:
        how = f"{read.confidence:.2f}" if read is not None and read.name == view.intent else "from its session"
        yield f"intent {view.intent} ({how}) → pool {view.pool}"
    elif read is not None:
        yield f"intent unsure (nearest {read.nearest}, {read.confidence:.2f}) → pool {view.pool}"


def _place(view: View, best: int) -> Iterator[str]:
    """Where the client is, and how far the node."""
    known = view.features.place
    if known is None:
        return
    node, km = view.fleet.nodes[best], view.km(best)
    far = "" if math.isnan(km) else f": {km:.0f} km to {node.region or node.address}"
    yield f"place by {known.source}{far}"


def _residency(view: View) -> Iterator[str]:
    """Where the request must stay."""
    rules = residency.concerning(view)
    if rules:
        yield f"must stay in {residency.in_words(rules)}"


def _absent(view: View, best: int, dropped: Mapping[str, Bools]) -> Iterator[str]:
    """What was left out, and what was not known."""
    for why, mask in dropped.items():
        yield f"dropped by {why}: {int(mask.sum())}"
    for name in view.features.missing:
        yield f"no answer in time: {name}"
    if not view.roomy(best):
        yield "no headroom left on it"


def _session(view: View, stay: Stay) -> Iterator[str]:
    """What the session had to say; without it the strategy chose."""
    if stay.node is not None:
        yield "session stays" + (" (retry)" if view.retry else "")
    else:
        yield f"strategy {view.rules.strategy}"
    if stay.released is not None:
        yield f"session released: {stay.released}"
    if view.conflict:
        yield "context version is older than the session's"
