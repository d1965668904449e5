"""The least loaded of two drawn candidates (Mitzenmacher 2001): nearly least request, without the herd."""

import numpy as np

from policy.strategies.ranking import Ranking, draws
from policy.types import Indices
from policy.view import View


def power_of_two(view: View, nodes: Indices) -> Ranking:
    """The `choices` drawn candidates come before all others, the one with fewer requests first."""
    size = int(nodes.size)
    load = view.load()[nodes]
    drawn = np.zeros(size)
    drawn[_distinct(view.request.turn, size, min(size, view.rules.choices))] = load.max() + 1.0
    return Ranking(drawn - load, {"drawn": drawn, "requests": -load})


def _distinct(turn: int, size: int, count: int) -> list[int]:
    """*count* different numbers under *size*: each draw is among those still left (Fisher and Yates, by hand)."""
    left: dict[int, int] = {}
    out = []
    for i, draw in enumerate(draws(turn, 1 << 64, count)):
        at = i + draw % (size - i)
        out.append(left.get(at, at))
        left[at] = left.get(i, i)
    return out
