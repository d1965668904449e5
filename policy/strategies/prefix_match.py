"""The candidate with most of the prompt in its cache, if that is enough and it is not much busier than the others."""

import numpy as np

from policy.strategies.ranking import Ranking, crowded
from policy.types import Indices
from policy.view import View


def prefix_match(view: View, nodes: Indices) -> Ranking:
    """Points: the matched share of the prompt above the floor, then fewer requests.

    Without the floor a block that every prompt begins with would send all to one node; without the guard a hot prefix
    would: on a public conversation trace longest-prefix-first served everything from one worker of eight.
    """
    rules, requests = view.rules.prefix, view.load()[nodes]
    few = -requests / (1.0 + float(requests.max()))  # in (-1, 0]: never outweighs a hundredth of the prompt
    if view.features.cached is None or view.request.prompt_tokens <= 0:
        return Ranking(few, {"requests": few})
    share = np.minimum(view.features.cached[nodes] / view.request.prompt_tokens, 1.0)
    share[(share < rules.floor) | crowded(requests, rules.spread)] = 0.0
    matched = np.floor(share * 100.0)
    return Ranking(matched + few, {"matched %": matched, "requests": few})
