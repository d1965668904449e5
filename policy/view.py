"""One request before one fleet: what the rules make of the facts, worked out once."""

from functools import cached_property

import numpy as np

from policy import geo
from policy.rules import Rules
from policy.types import Bools, Features, Fleet, Floats, Request


class View:
    """The arguments of a decision and what follows from them. Reads, never writes."""

    def __init__(self, request: Request, features: Features, fleet: Fleet, rules: Rules) -> None:
        self.request = request
        self.features = features
        self.fleet = fleet
        self.rules = rules

    @cached_property
    def intent(self) -> str | None:
        """What the request is about; a short or unclear follow-up keeps what its conversation was about."""
        read = self.features.intent.name if self.features.intent is not None else None
        before = self.features.binding.intent if self.features.binding is not None else None
        short = self.request.follow_up and self.request.asked <= self.rules.follow_up_chars
        if before is not None and (read is None or short):
            return before
        return read

    @cached_property
    def pool(self) -> str:
        """The pool the intent belongs to; without a clear intent the general one."""
        if self.intent is not None:
            for name, pool in self.rules.pools.items():
                if self.intent in pool.intents:
                    return name
        return self.rules.general

    @cached_property
    def km(self) -> Floats | None:
        """Distance of every node, [n] km."""
        return geo.distances_km(self.features.place, self.fleet)

    @cached_property
    def room(self) -> Bools:
        """Nodes with headroom, [n]: not over the watermark, under their own request rate. Unknown is room."""
        fleet = self.fleet
        return ~(fleet.full | (fleet.qps >= fleet.qps_limit))

    @cached_property
    def load(self) -> Floats:
        """Requests at each node, [n]: running, waiting, and ours since they were counted.

        A node nobody could read counts as an average one.
        """
        fleet = self.fleet
        scraped = fleet.running + np.nan_to_num(fleet.waiting)
        unknown = np.isnan(scraped)
        if unknown.all():
            return np.nan_to_num(fleet.sent)
        if unknown.any():
            scraped = np.where(unknown, scraped[~unknown].mean(), scraped)
        return scraped + fleet.sent

    @property
    def retry(self) -> bool:
        """The client repeats a turn the session has seen."""
        return self._context_step == 0

    @property
    def conflict(self) -> bool:
        """The client's context is older than what the session has seen."""
        return self._context_step is not None and self._context_step < 0

    @property
    def _context_step(self) -> int | None:
        binding = self.features.binding
        if binding is None or binding.context_version is None or self.request.context_version is None:
            return None
        return self.request.context_version - binding.context_version
