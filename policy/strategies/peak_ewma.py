"""The candidate that would be done soonest by its recent latency and what it has to do (Finagle's peak EWMA)."""

import numpy as np

from policy.strategies.ranking import Ranking, known
from policy.types import Indices
from policy.view import View

UNMEASURED_MS = 300.0
"""Where no candidate's latency was ever measured; as in linkerd."""


def peak_ewma(view: View, nodes: Indices) -> Ranking:
    """Points: minus peak average of latency · (requests + 1); an unmeasured node counts as an average one."""
    latency = known(view.fleet.peak_ms[nodes], UNMEASURED_MS)
    cost = latency * (view.load()[nodes] + 1.0) / np.maximum(view.fleet.warm[nodes], 1e-3)
    return Ranking(-cost, {"ms until done": -cost}, equal=1e-3 * float(cost.min()))
