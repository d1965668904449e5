"""The fleet as it is now: which nodes there are, how busy each is, and what we sent since anybody looked."""

import math
from collections.abc import Iterable

import numpy as np

from policy.rules import Watermarks
from policy.types import Fleet, Floats, Load, Node

WINDOW_S = 60.0
STEP_S = 5.0
STALE_S = 10.0
"""Figures older than this are not known any more."""
_SLOTS = int(WINDOW_S / STEP_S)


class LiveFleet:
    """Owner of the columns behind a policy Fleet. One thread, the event loop's; times are seconds on its clock.

    Decisions read `fleet`, whose columns change in place: what we sent shows in the very next decision.
    """

    def __init__(self, nodes: Iterable[Node], watermarks: Watermarks) -> None:
        self._watermarks = watermarks
        self.fleet = Fleet(nodes)
        size = len(self.fleet)
        self._sent: Floats = np.zeros((_SLOTS + 1, size))
        """Requests in each step of the window, the current one last written; one slot more than whole steps."""
        self._total: Floats = np.zeros(size)
        """The sum of all slots, kept so that counting one request does not add thirteen."""
        self._step = 0
        self._step_ends = -math.inf
        self._began = math.inf
        self._seen: Floats = np.full(size, -math.inf)

    def sent(self, address: str, now: float, requests: float = 1.0) -> None:
        """One more request went to *address*; or, of -1, one that was counted went elsewhere."""
        where = self.fleet.by_address.get(address)
        if where is None:
            return
        if now >= self._step_ends:
            self._advance(now)
        self._sent[self._step % (_SLOTS + 1), where] += requests
        self._total[where] = total = self._total.item(where) + requests
        self.fleet.sent[where] += requests
        # Requests a second over the last 60 s, in 5 s steps (design formula 2); over less while we are younger.
        self.fleet.qps[where] = total / self._span(now)

    def unread(self, address: str) -> float:
        """Requests sent to *address* since its figures were read; ask before reading them again."""
        where = self.fleet.by_address.get(address)
        return 0.0 if where is None else float(self.fleet.sent[where])

    def observed(self, address: str, load: Load, now: float, *, counted: float | None = None) -> None:
        """A pod's own figures, just read; what it does not say is not known.

        *counted*: requests that were `unread` when the page was asked for. Those sent while it was under way are in
        nobody's figures yet, so they stay ours; None: no request was sent meanwhile.
        """
        where = self.fleet.by_address.get(address)
        if where is None:
            return
        fleet = self.fleet
        fleet.running[where] = _number(load.running)
        fleet.waiting[where] = _number(load.waiting)
        fleet.memory[where] = _number(load.memory)
        fleet.sent[where] = 0.0 if counted is None else max(0.0, fleet.sent[where] - counted)
        self._seen[where] = now
        self._watermark(where)

    def tick(self, now: float) -> None:
        """Time goes by, about once a second: rates fall though nothing is sent, and figures grow stale.

        A pod whose figures are stale is neither idle nor saturated: it may be well and only its metrics port gone. Nor
        does what we sent it add up for ever, since nobody will count it: that alone would starve it.
        """
        self._advance(now)
        fleet = self.fleet
        fleet.qps[:] = self._total / self._span(now)
        stale = now - self._seen >= STALE_S
        for column in (fleet.running, fleet.waiting, fleet.memory):
            column[stale] = math.nan
        fleet.sent[stale] = 0.0
        fleet.full[stale] = False

    def replace(self, nodes: Iterable[Node]) -> None:
        """Another topology; a node with the same address and identity keeps its figures, another pod starts anew."""
        old, old_sent, old_total, old_seen = self.fleet, self._sent, self._total, self._seen
        new = Fleet(nodes)
        self._sent = np.zeros((_SLOTS + 1, len(new)))
        self._total = np.zeros(len(new))
        self._seen = np.full(len(new), -math.inf)
        for i, node in enumerate(new.nodes):
            was = old.by_address.get(node.address)
            if was is None or old.nodes[was].key != node.key:
                continue
            for column in ("running", "waiting", "memory", "qps", "sent", "latency_ms", "error_rate", "full"):
                getattr(new, column)[i] = getattr(old, column)[was]
            self._sent[:, i] = old_sent[:, was]
            self._total[i] = old_total[was]
            self._seen[i] = old_seen[was]
        self.fleet = new

    def _advance(self, now: float) -> None:
        self._began = min(self._began, now)
        step = int(now / STEP_S)
        behind = min(step - self._step, _SLOTS + 1)
        for i in range(behind):
            slot = (step - i) % (_SLOTS + 1)
            self._total -= self._sent[slot]
            self._sent[slot] = 0.0
        self._step = max(step, self._step)
        self._step_ends = (self._step + 1) * STEP_S

    def _span(self, now: float) -> float:
        whole = WINDOW_S + now % STEP_S
        age = now - self._began
        return whole if age > whole else max(STEP_S, age)

    def _watermark(self, where: int) -> None:
        """Above high a node is full, until it is back under low; between the two it stays what it was."""
        memory = self.fleet.memory[where]
        if memory > self._watermarks.high:
            self.fleet.full[where] = True
        elif not memory >= self._watermarks.low:
            self.fleet.full[where] = False


def _number(value: float | None) -> float:
    return math.nan if value is None else value
