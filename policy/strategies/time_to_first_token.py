"""When would the first token be there? Seconds all the way: the way, the queue, the prompt, a cache that is full."""

import math

import numpy as np

from policy import geo
from policy.strategies.ranking import Ranking, crowded, known
from policy.strategies.router_balancing import ABROAD, router_balancing
from policy.types import Floats, Indices
from policy.view import View

SLOW = 2.0
"""Times the fleet's middle P99: less than that is chance, or a long prompt."""
_LATER = 1e6  # seconds: behind every candidate that is not crowded


def time_to_first_token(view: View, nodes: Indices) -> Ranking:
    """Points: minus seconds (design formula 5). Candidates within `equal_s` and a hundredth of the best share the work.

    Where nothing is known of any candidate's load it is `router_balancing` that decides.
    """
    fleet, rules = view.fleet, view.rules.first_token
    if not _signals(view, nodes):
        return router_balancing(view, nodes)
    rate = known(fleet.prefill_rate[nodes], rules.prefill_tokens_per_s) * np.maximum(fleet.warm[nodes], 1e-3)
    seconds: dict[str, Floats] = {"network": _way(view, nodes)} if rules.place else {}
    if rules.queue:
        seconds["queue"] = _ahead(view, nodes) / rate + view.load()[nodes] * rules.request_s
    seconds["prompt"] = _unread(view, nodes) / rate
    if rules.pressure:
        low = view.rules.watermarks.low
        seconds["pressure"] = np.fmax(fleet.memory[nodes] - low, 0.0) * (rules.pressure_s / (1.0 - low))
    if rules.late:
        seconds["late"] = np.fmax(fleet.peak_ms[nodes] - SLOW * fleet.usual_ms, 0.0) / 1000.0
    seconds["errors"] = np.fmax(fleet.error_rate[nodes], 0.0) * rules.error_s
    cost = sum(seconds.values(), np.zeros(nodes.size))
    equal = rules.equal_s + 0.01 * float(cost.min())
    criteria = {name: -part for name, part in seconds.items()}
    if rules.guard:
        criteria["crowded"] = np.where(crowded(view.load()[nodes], rules.spread), -_LATER, 0.0)
        cost = cost - criteria["crowded"]
    home = geo.same_continent(view.features.place, fleet) if rules.place else None
    if home is not None:
        criteria["continent"] = np.where(home[nodes], 0.0, -ABROAD)
        cost = cost - criteria["continent"]
    return Ranking(-cost, criteria, equal)


def _signals(view: View, nodes: Indices) -> bool:
    fleet = view.fleet
    # fmin.reduce is NaN only where all are.
    return not (math.isnan(np.fmin.reduce(fleet.queued_tokens)) and math.isnan(np.fmin.reduce(fleet.running[nodes])))


def _way(view: View, nodes: Indices) -> Floats:
    """There and back, in seconds; a node of unknown place counts as an average one."""
    if view.origin is None:
        return np.zeros(nodes.size)
    km = geo.distances_km(view.origin, view.fleet.positions[nodes])
    return known(km, 0.0) * (geo.RTT_MS_PER_KM / 1000.0)


def _ahead(view: View, nodes: Indices) -> Floats:
    """Prompt tokens that a node reads before ours: what it says or we know; else requests of this one's own length."""
    fleet = view.fleet
    told = fleet.queued_tokens[nodes]
    if not math.isnan(np.add.reduce(told)):
        return told
    waiting = np.fmax(fleet.waiting[nodes], 0.0) + fleet.sent[nodes]
    return np.where(np.isnan(told), waiting * max(1, view.request.prompt_tokens), told)


def _unread(view: View, nodes: Indices) -> Floats:
    """Tokens of the prompt a node has not in its cache."""
    tokens = float(view.request.prompt_tokens)
    if view.features.cached is None or not view.rules.first_token.cache:
        return np.full(nodes.size, tokens)
    return np.maximum(tokens - view.features.cached[nodes], 0.0)
