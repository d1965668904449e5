"""How candidates are ranked: each strategy is a function from a view and its candidates to points."""

from collections.abc import Callable, Mapping

from policy.rules import Strategy
from policy.strategies.least_request import least_request
from policy.strategies.power_of_two import power_of_two
from policy.strategies.ranking import Ranking
from policy.strategies.round_robin import round_robin
from policy.strategies.router_balancing import router_balancing
from policy.types import Indices
from policy.view import View

STRATEGIES: Mapping[Strategy, Callable[[View, Indices], Ranking]] = {
    "round_robin": round_robin,
    "least_request": least_request,
    "power_of_two": power_of_two,
    "router_balancing": router_balancing,
}

__all__ = ["STRATEGIES", "Ranking"]
