"""How candidates are ranked: each strategy is a function from a view and its candidates to points."""

from collections.abc import Callable, Mapping

from policy.rules import Strategy
from policy.strategies.least_request import least_request
from policy.strategies.peak_ewma import peak_ewma
from policy.strategies.power_of_two import power_of_two
from policy.strategies.prefix_match import prefix_match
from policy.strategies.prequal import prequal
from policy.strategies.ranking import Ranking
from policy.strategies.round_robin import round_robin
from policy.strategies.router_balancing import router_balancing
from policy.strategies.time_to_first_token import time_to_first_token
from policy.types import Indices
from policy.view import View

STRATEGIES: Mapping[Strategy, Callable[[View, Indices], Ranking]] = {
    "round_robin": round_robin,
    "least_request": least_request,
    "power_of_two": power_of_two,
    "peak_ewma": peak_ewma,
    "prequal": prequal,
    "prefix_match": prefix_match,
    "router_balancing": router_balancing,
    "time_to_first_token": time_to_first_token,
}

__all__ = ["STRATEGIES", "Ranking"]
