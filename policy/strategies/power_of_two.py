"""The less loaded of two drawn candidates (Mitzenmacher 2001): nearly least request, without the herd."""

import numpy as np

from policy.strategies.ranking import Ranking, draws
from policy.types import Indices
from policy.view import View


def power_of_two(view: View, nodes: Indices) -> Ranking:
    """The two drawn candidates come before all others, the one with fewer requests first."""
    size = int(nodes.size)
    load = view.load()[nodes]
    drawn = np.zeros(size)
    if size > 1:
        one = draws(view.request.turn, size, 1)[0]
        other = draws(view.request.turn, size * 2, 2)[1] % (size - 1)
        drawn[[one, other + (other >= one)]] = load.max() + 1.0
    return Ranking(drawn - load, {"drawn": drawn, "requests": -load})
