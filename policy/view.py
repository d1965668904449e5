"""One request before one fleet: what the rules make of the facts, worked out once."""

import math

import numpy as np

from policy import geo
from policy.rules import Rules
from policy.types import Bools, Features, Fleet, Floats, Request


class View:
    """The arguments of a decision and what follows from them. Reads, never writes."""

    __slots__ = ("_load", "_room", "features", "fleet", "intent", "origin", "pool", "request", "rules")

    def __init__(self, request: Request, features: Features, fleet: Fleet, rules: Rules) -> None:
        self.request = request
        self.features = features
        self.fleet = fleet
        self.rules = rules
        self.intent = _intent(request, features, rules)
        """What the request is about; None: not known, or the clusters are unsure."""
        self.pool = rules.pool_of(self.intent)
        """The pool the intent belongs to; without a clear intent the general one."""
        self.origin: Floats | None = geo.origin(features.place, fleet)
        """Where the client is, as a unit vector [3]."""
        self._room: Bools | None = None
        self._load: Floats | None = None

    @property
    def room(self) -> Bools:
        """Nodes with headroom, [n]: not over the watermark, under their own request rate. Unknown is room."""
        if self._room is None:
            fleet = self.fleet
            self._room = ~(fleet.full | (fleet.qps >= fleet.qps_limit))
        return self._room

    def roomy(self, node: int) -> bool:
        """The same for one node: a session's own is often the only one looked at."""
        fleet = self.fleet
        return not (fleet.full.item(node) or fleet.qps.item(node) >= fleet.qps_limit.item(node))

    def load(self) -> Floats:
        """Requests at each node, [n]: running, waiting, and ours since they were counted; at least those of ours that
        have not ended.

        A node nobody could read counts as an average one.
        """
        if self._load is None:
            self._load = self._requests()
        return self._load

    def _requests(self) -> Floats:
        fleet = self.fleet
        scraped = fleet.running + fleet.waiting
        if math.isnan(np.add.reduce(scraped)):
            scraped = fleet.running + np.nan_to_num(fleet.waiting)
            unknown = np.isnan(scraped)
            if unknown.all():  # what we sent says nothing where we know what has not ended
                return np.where(np.isnan(fleet.inflight), np.nan_to_num(fleet.sent), fleet.inflight)
            scraped[unknown] = scraped[~unknown].mean()
        return np.fmax(scraped + fleet.sent, fleet.inflight)

    def km(self, node: int) -> float:
        """How far one node is; NaN: not known."""
        return math.nan if self.origin is None else geo.distance_km(self.origin, self.fleet.positions[node])

    @property
    def retry(self) -> bool:
        """The client repeats a turn the session has seen."""
        return self._context_step() == 0

    @property
    def conflict(self) -> bool:
        """The client's context is older than what the session has seen."""
        return self._context_step() < 0

    def _context_step(self) -> float:
        """How far the client's context is ahead of the session's; NaN when either is not known."""
        binding, version = self.features.binding, self.request.context_version
        if binding is None or binding.context_version is None or version is None:
            return math.nan
        return version - binding.context_version


def _intent(request: Request, features: Features, rules: Rules) -> str | None:
    """A short or unclear follow-up keeps what its conversation was about."""
    read = features.intent.name if features.intent is not None else None
    before = features.binding.intent if features.binding is not None else None
    short = request.follow_up and request.asked <= rules.follow_up_chars
    return before if before is not None and (read is None or short) else read
