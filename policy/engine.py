"""The decision: the whole of it, in order."""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec
import numpy as np

from policy import affinity, because, filters
from policy.affinity import Stay
from policy.confidence import confidence
from policy.rules import Rules
from policy.strategies import STRATEGIES, Ranking
from policy.strategies.ranking import draws
from policy.types import Bools, Decision, Features, Fleet, Indices, Node, Request, Shed, Tier
from policy.view import View


class Candidate(msgspec.Struct, frozen=True):
    """One node that was compared, its points and what they are made of."""

    address: str
    points: float
    criteria: Mapping[str, float]


class Explanation(msgspec.Struct, frozen=True):
    """A decision with everything that was compared for it, best candidate first."""

    outcome: Decision | Shed
    because: tuple[str, ...]
    dropped: Mapping[str, tuple[str, ...]]
    candidates: tuple[Candidate, ...] = ()


_NOBODY: Indices = np.zeros(0, dtype=np.intp)
_UNRANKED = Ranking(np.zeros(0), {})


class _Weighed(NamedTuple):
    """What a decision was taken from."""

    outcome: Decision | Shed
    dropped: Mapping[str, Bools] = {}
    nodes: Indices = _NOBODY
    ranking: Ranking = _UNRANKED
    stay: Stay = Stay()


def decide(request: Request, features: Features, fleet: Fleet, rules: Rules) -> Decision | Shed:
    """Choose a node. Pure: the same arguments give the same answer."""
    return _weigh(View(request, features, fleet, rules), compare=False).outcome


def explain(request: Request, features: Features, fleet: Fleet, rules: Rules) -> Explanation:
    """The very decision `decide` takes, with all it compared."""
    view = View(request, features, fleet, rules)
    weighed = _weigh(view, compare=True)
    reasons: tuple[str, ...] = ()
    if isinstance(weighed.outcome, Decision):
        reasons = because.all_of(view, fleet.by_address[weighed.outcome.node.address], weighed.dropped, weighed.stay)
    names = {why: tuple(fleet.nodes[i].address for i in np.flatnonzero(mask)) for why, mask in weighed.dropped.items()}
    points, criteria, _ = weighed.ranking
    candidates = tuple(
        Candidate(
            fleet.nodes[weighed.nodes[i]].address,
            float(points[i]),
            {name: float(part[i]) for name, part in criteria.items()},
        )
        for i in np.argsort(-points, kind="stable")
    )
    return Explanation(weighed.outcome, reasons, names, candidates)


def _weigh(view: View, *, compare: bool) -> _Weighed:
    if view.conflict and view.rules.strict_context:
        detail = "The context version is older than this session has seen."
        return _Weighed(Shed(reason="context-conflict", detail=detail))
    left, dropped = filters.keep(view)
    if not np.count_nonzero(left):
        return _Weighed(filters.shed(view, dropped), dropped)

    stay = affinity.pinned(view, left)
    if stay.node is not None and not (view.rules.fallbacks or compare):
        nodes, ranking, best = _NOBODY, _UNRANKED, stay.node  # nothing else is asked for, so nothing is compared
    else:
        nodes = filters.first(view, left).nonzero()[0]
        ranking = STRATEGIES[view.rules.strategy](view, nodes)
        best = stay.node if stay.node is not None else int(nodes[_top(ranking, view.request.turn)])

    node = view.fleet.nodes[best]
    tier = _tier(view, best)
    decision = Decision(
        node=node,
        fallbacks=tuple(view.fleet.nodes[i] for i in _next(best, nodes, ranking, view.rules.fallbacks)),
        model=_model(view, node) if view.request.auto else None,
        intent=view.intent,
        tier=tier,
        confidence=round(confidence(view, best, tier), 3),
        stuck=stay.node is not None,
        conflict=view.conflict,
    )
    return _Weighed(decision, dropped, nodes, ranking, stay)


def _top(ranking: Ranking, turn: int) -> int:
    """The candidate with most points; ties are broken by turn, so that equals share the work."""
    best = int(ranking.points.argmax())
    ties = (ranking.points >= ranking.points[best] - ranking.equal).nonzero()[0]
    return best if ties.size == 1 else int(ties[draws(turn, ties.size, 1)[0]])


def _next(best: int, nodes: Indices, ranking: Ranking, count: int) -> list[int]:
    """The *count* candidates with most points besides *best*."""
    if count == 0:
        return []
    points = ranking.points.copy()
    points[nodes == best] = -np.inf
    out = []
    for _ in range(min(count, nodes.size)):
        at = int(points.argmax())
        if int(nodes[at]) != best and points[at] > -np.inf:
            out.append(int(nodes[at]))
        points[at] = -np.inf
    return out


def _model(view: View, node: Node) -> str | None:
    """What `auto` becomes on *node*; None where the node serves the word itself."""
    if view.request.model in node.models or node.pool not in view.rules.pools:
        return None
    return view.rules.pools[node.pool].model


def _tier(view: View, best: int) -> Tier:
    if not view.roomy(best):
        return "last-resort"
    known = view.request.api is not None and view.pool in view.fleet.pools
    if view.features.missing or (known and view.fleet.nodes[best].pool != view.pool):
        return "degraded"
    return "normal"
