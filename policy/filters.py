"""Which nodes may answer at all, and which of them come first."""

from collections.abc import Callable, Mapping

import numpy as np

from policy import residency as residence
from policy.types import Bools, Hint, Shed
from policy.view import View

Filter = Callable[[View], Bools | None]
"""True where a node may stay, [n]; None: nothing to say about this request."""


def subset(view: View) -> Bools | None:
    """The gateway's own restriction, by `ip:port`, or by `ip` for all its ports; addresses nobody has count nothing."""
    allowed = view.request.subset
    if allowed is None:
        return None
    fleet = view.fleet
    mask = np.zeros(len(fleet), dtype=np.bool_)
    for entry in allowed:
        if entry in fleet.by_address:
            mask[fleet.by_address[entry]] = True
        elif entry in fleet.by_ip:
            mask[fleet.by_ip[entry]] = True
    return mask


def draining(view: View) -> Bools | None:
    """Nodes on their way out take no new work."""
    return None if view.fleet.draining is None else ~view.fleet.draining


def model(view: View) -> Bools | None:
    """The named model; for `auto`, nodes of a pool that names one, or that serve the word itself."""
    request, fleet = view.request, view.fleet
    if request.model is None:
        return None
    mask = fleet.serving(request.model)
    if not request.auto:
        unread = request.model == view.rules.auto_model and mask is not None and not np.count_nonzero(mask)
        return None if unread else mask  # `auto` in a body we cannot change: as if the body had not been seen
    named = [fleet.pools[name] for name, pool in view.rules.pools.items() if pool.model and name in fleet.pools]
    itself = _lists_models(view) if mask is None else mask & _lists_models(view)
    return np.logical_or.reduce([itself, *named])  # type: ignore[no-any-return]  # numpy's stubs say Any


def modality(view: View) -> Bools | None:
    """Nodes that read images or audio, when the request has some."""
    wanted = view.request.modality
    if wanted == "text":
        return None
    return np.array([wanted in node.modalities for node in view.fleet.nodes], dtype=np.bool_)


def context(view: View) -> Bools | None:
    """Prompt and answer fit the node's context; unknown length of either side fits."""
    tokens = view.request.prompt_tokens + (view.request.max_tokens or 0)
    if tokens <= view.fleet.shortest_context:
        return None
    return ~(view.fleet.context_length < tokens)


def watermark(view: View) -> Bools | None:
    """Nodes over their memory watermark."""
    return ~view.fleet.full if np.count_nonzero(view.fleet.full) else None


def dead(view: View) -> Bools | None:
    """Nodes that refused every connection lately."""
    return ~view.fleet.dead if np.count_nonzero(view.fleet.dead) else None


def required(view: View) -> Bools | None:
    """Hints the client made a condition."""
    wanted = [hint for hint in view.request.hints if hint.required]
    if not wanted:
        return None
    return np.logical_and.reduce([hinted(view, hint) for hint in wanted])  # type: ignore[no-any-return]  # as above


def residency(view: View) -> Bools | None:
    """Nodes where the data of this request may go. Last, so that it is the reason only where it alone is in the way."""
    return residence.eligible(view)


HARD: Mapping[str, Filter] = {f.__name__: f for f in (subset, draining, model, required, residency)}
"""Nothing left behind one of these is an answer to the client."""
SOFT: Mapping[str, Filter] = {f.__name__: f for f in (dead, modality, context, watermark)}
"""These rest on estimates, or on what a pod says better itself: where nothing would be left, they do not count."""


def keep(view: View) -> tuple[Bools, dict[str, Bools]]:
    """The nodes that stay, [n], and for each filter that took some away, which."""
    left = view.fleet.every
    dropped: dict[str, Bools] = {}
    for name, rule in (*HARD.items(), *SOFT.items()):
        mask = rule(view)
        if mask is None:
            continue
        gone = left & ~mask
        if not (count := np.count_nonzero(gone)) or (name in SOFT and count == np.count_nonzero(left)):
            continue
        dropped[name] = gone
        left = left & mask
    return left, dropped


def shed(view: View, dropped: dict[str, Bools]) -> Shed:
    """Why nothing is left, in the client's terms: the last filter that took nodes away."""
    counts = {name: int(mask.sum()) for name, mask in dropped.items()}
    last = next(reversed(dropped), "")
    if last == "model":
        known = view.fleet.model_names
        aliases = f"Valid aliases: {', '.join(known[:64])}." if known else "No names of models are listed here."
        detail = f"The model `{view.request.model:.256}` does not exist. {aliases}"
        return Shed(reason="unknown-model", detail=detail, dropped=counts)
    if last == "required":
        wanted = ", ".join(f"{hint.key}={hint.value}" for hint in view.request.hints if hint.required)
        return Shed(reason="hint", detail=f"No node meets the required hint {wanted:.256}.", dropped=counts)
    if last == "subset":
        return Shed(reason="subset", detail="No node of the given subset is available.", dropped=counts)
    if last == "residency":
        stay = residence.in_words(residence.concerning(view))
        detail = f"This request must stay in {stay} (data residency), and no node there is available for it."
        return Shed(reason="residency", detail=detail, dropped=counts)
    return Shed(reason="no-nodes", detail="No node is available.", dropped=counts)


def first(view: View, nodes: Bools) -> Bools:
    """The nodes to choose from, [n]: hinted ones, then the intent's pool, the general one, any.

    Nodes with headroom come before nodes without.
    """
    fleet = view.fleet
    for hint in view.request.hints:
        wished = nodes & hinted(view, hint)
        if np.count_nonzero(wished & view.room):
            nodes = wished
    pools = [fleet.pools[name] for name in (view.pool, view.rules.general) if name in fleet.pools]
    for open_ in (nodes & view.room, nodes):
        for pool in pools:
            group = open_ & pool
            if np.count_nonzero(group):
                return group
        if np.count_nonzero(open_):
            return open_
    raise ValueError("there is no node to choose from")


def hinted(view: View, hint: Hint) -> Bools:
    """The nodes a hint means, [n]."""
    fleet, value = view.fleet, hint.value
    none = np.zeros(len(fleet), dtype=np.bool_)
    match hint.key:
        case "zone":
            return fleet.zones.get(value, none)
        case "region":
            return fleet.regions.get(value, none)
        case "pool":
            return fleet.pools.get(value, none)
        case "tier":
            return none if value == "normal" else fleet.pools.get(view.rules.general, none)
        case "node":
            return _at(view, value, none)
        case "avoid":
            return ~(_at(view, value, none) | fleet.zones.get(value, none) | fleet.regions.get(value, none))
        case _:
            return none


def _at(view: View, address: str, none: Bools) -> Bools:
    where = view.fleet.by_address.get(address)
    if where is None:
        return none
    mask = none.copy()
    mask[where] = True
    return mask


def _lists_models(view: View) -> Bools:
    return np.array([bool(node.models) for node in view.fleet.nodes], dtype=np.bool_)
