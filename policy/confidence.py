"""How sure a decision is, in [0.3, 1.0]."""

import math

from policy.geo import RTT_MS_PER_KM
from policy.types import Tier
from policy.view import View

UNKNOWN = 0.5


def confidence(view: View, node: int, tier: Tier) -> float:
    """Design formula 8: (1 − latency/2000 ms − 2·errors) · intent, floored: normal 0.6, else max(0.3, 0.7·).

    Latency nobody measured is the way there and back; errors nobody counted are none.
    """
    fleet = view.fleet
    latency = fleet.latency_ms.item(node)
    if math.isnan(latency):
        km = view.km(node)
        latency = 0.0 if math.isnan(km) else km * RTT_MS_PER_KM
    errors = fleet.error_rate.item(node)
    base = 1.0 - latency / 2000.0 - 2.0 * (0.0 if math.isnan(errors) else errors)
    intent = UNKNOWN if view.features.intent is None else view.features.intent.confidence
    sure = min(1.0, max(0.0, base) * intent)
    return max(0.6, sure) if tier == "normal" else max(0.3, 0.7 * sure)
