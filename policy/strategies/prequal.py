"""Hot or cold, then latency or load: the rule of Prequal (Wydrowski et al., NSDI 2024), with a view of every node."""

import math

import numpy as np

from policy.strategies.ranking import Ranking, known
from policy.types import Indices
from policy.view import View

HOT_QUANTILE = 2.0**-0.25
"""Of the candidates' requests in flight; a node above is hot (the paper's testbed)."""
_UNMEASURED_MS = 300.0
_COLD = 1e9  # more than any latency: every cold candidate comes before every hot one


def prequal(view: View, nodes: Indices) -> Ranking:
    """The cold candidate of lowest latency; where all are hot, the one with the fewest requests."""
    requests = view.load()[nodes]
    latency = known(view.fleet.latency_ms[nodes], _UNMEASURED_MS)
    limit = math.floor(HOT_QUANTILE * (requests.size - 1))
    hot = requests > np.partition(requests, limit)[limit]
    criteria = {
        "cold": np.where(hot, 0.0, _COLD),
        "latency": np.where(hot, 0.0, -latency),
        "requests": np.where(hot, -requests, 0.0),
    }
    return Ranking(np.where(hot, -requests, _COLD - latency), criteria)
