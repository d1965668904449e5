"""The candidate with the fewest requests."""

from policy.strategies.ranking import Ranking
from policy.types import Indices
from policy.view import View


def least_request(view: View, nodes: Indices) -> Ranking:
    """Points: minus the requests running, waiting and on their way."""
    points = -view.load()[nodes]
    return Ranking(points, {"requests": points})
