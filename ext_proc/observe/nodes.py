"""Every node on the metrics page: what is known of it, and how evenly work is spread."""

import math
from collections.abc import Callable, Iterator

import numpy as np
from prometheus_client.core import GaugeMetricFamily

from policy.entropy import evenness
from policy.live import LiveFleet

COLUMNS = {
    "running": "Requests the node says it works on.",
    "waiting": "Requests the node says are waiting.",
    "memory": "Share of its KV cache in use, 0 to 1.",
    "qps": "Requests a second we sent it in the last minute.",
    "sent": "Requests we sent it since its figures were read.",
    "latency_ms": "Half of its answers begin sooner (access log).",
    "p99_ms": "99 of 100 of its answers begin sooner (access log).",
    "error_rate": "Share of its answers that were its errors (access log).",
    "warm": "How far it has come in its slow start, 0 to 1.",
    "full": "Over its memory watermark.",
    "dead": "Nobody listens there.",
}
"""Columns of the fleet that are shown; what is not known is left out."""


class Nodes:
    """Collects when somebody looks. For the registry."""

    def __init__(self, live: LiveFleet, clock: Callable[[], float]) -> None:
        self._live = live
        self._clock = clock

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """One family a column, one sample a node."""
        fleet = self._live.fleet
        for column, what in COLUMNS.items():
            family = GaugeMetricFamily(f"isogloss_node_{column}", what, labels=["node"])
            for node, value in zip(fleet.nodes, getattr(fleet, column), strict=True):
                if not math.isnan(value):
                    family.add_metric([node.address], float(value))
            yield family
        ages = GaugeMetricFamily("isogloss_node_scrape_age_seconds", "Since its page was last read.", labels=["node"])
        for node, age in zip(fleet.nodes, self._live.ages(self._clock()), strict=True):
            if math.isfinite(age):
                ages.add_metric([node.address], float(age))
        yield ages
        load = np.nan_to_num(fleet.running) + np.nan_to_num(fleet.waiting) + fleet.sent
        yield GaugeMetricFamily(
            "isogloss_load_evenness", "Entropy of the load over log2 of the nodes: 1 is even.", value=evenness(load)
        )
