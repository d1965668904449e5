"""Each candidate in turn."""

import numpy as np

from policy.strategies.ranking import Ranking
from policy.types import Indices
from policy.view import View


def round_robin(view: View, nodes: Indices) -> Ranking:
    """The candidate whose turn it is has most points, the one after it the second most."""
    points = -((np.arange(nodes.size) - view.request.turn) % nodes.size).astype(np.float64)
    return Ranking(points, {"turn": points})
