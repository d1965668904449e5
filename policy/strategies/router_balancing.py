"""The reference policy *Router-Balancing*: near nodes first, among them by request rate and memory."""

import math

import numpy as np

from policy import entropy, geo
from policy.strategies.ranking import Ranking, known
from policy.types import Floats, Indices
from policy.view import View

UNKNOWN = 0.5  # an unknown must neither win nor lose on its own
ABROAD = 1000.0  # more soft radii than the earth has: another continent only when there is no other way


def router_balancing(view: View, nodes: Indices) -> Ranking:
    """Design formulas 1 to 4: (qps·(1 − qps/limit) + memory·(1 − memory)) · entropy weight · P99 weight, each weight
    relative to the best candidate's, minus the soft radii to the client.

    A whole radius outweighs everything the load can say, so load decides among the equally near; candidates
    without headroom were taken away before, which is what sends work further.
    """
    fleet, balance = view.fleet, view.rules.balance
    memory = fleet.memory[nodes]
    by_rate, by_memory = balance.qps, balance.memory
    if pressed(fleet.memory, balance.pressed_above):
        by_rate, by_memory = balance.pressed_qps, balance.pressed_memory
    rate = by_rate * _known(1.0 - np.minimum(fleet.qps[nodes] / fleet.qps_limit[nodes], 1.0))
    free = by_memory * _known(1.0 - memory)
    criteria: dict[str, Floats] = {"request rate": rate, "free memory": free}
    points = rate + free
    if balance.entropy:
        points = _weighed("share of requests", points, entropy.weights(view.load()[nodes]), criteria)
    if balance.latency:
        points = _weighed("P99", points, by_latency(fleet.p99_ms[nodes]), criteria)
        points = _weighed("errors", points, 1.01 - np.fmax(fleet.error_rate[nodes], 0.0), criteria)
    if view.origin is not None:
        km = geo.distances_km(view.origin, fleet.positions[nodes])
        criteria["distance"] = 0.0 - geo.rings(km, view.rules.near_km)  # not -0.0
        points += criteria["distance"]
    home = geo.same_continent(view.features.place, fleet)
    if home is not None:
        criteria["continent"] = np.where(home[nodes], 0.0, -ABROAD)
        points += criteria["continent"]
    return Ranking(points, criteria)


def by_latency(p99_ms: Floats) -> Floats:
    """w = max(0.1, 1000 / max(P99, 1 ms)), [m] (design formula 3); an unmeasured node counts as an average one."""
    out: Floats = np.maximum(0.1, 1000.0 / np.maximum(known(p99_ms, 1000.0), 1.0))
    return out


def _weighed(name: str, points: Floats, weights: Floats, criteria: dict[str, Floats]) -> Floats:
    """*points* times weights of which the best is 1; what a candidate loses by it is the criterion."""
    out: Floats = points * (weights / weights.max())
    criteria[name] = out - points
    return out


def pressed(memory: Floats, above: float) -> bool:
    """The fleet's mean memory is strictly above *above*; two nodes that average exactly 0.85 are not.

    The tolerance is for what binary fractions add to such an average.
    """
    mean = float(np.add.reduce(memory)) / max(1, memory.size)
    if math.isnan(mean):
        known = memory[~np.isnan(memory)]
        mean = float(known.mean()) if known.size else 0.0
    return mean > above + 1e-9


def _known(share: Floats) -> Floats:
    if math.isnan(np.add.reduce(share)):
        share[np.isnan(share)] = UNKNOWN
    return share
