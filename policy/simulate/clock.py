"""Time that passes only from event to event."""

import heapq
from collections.abc import Callable
from typing import Any


class Clock:
    """Events in order of time, those of one moment in the order they were made."""

    def __init__(self) -> None:
        self.now = 0.0
        """Seconds."""
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._made = 0

    def at(self, when: float, what: Callable[..., None], *arguments: Any) -> None:
        """Call *what* at *when*, or now if that is past."""
        self._made += 1
        heapq.heappush(self._events, (max(when, self.now), self._made, what, arguments))

    def after(self, seconds: float, what: Callable[..., None], *arguments: Any) -> None:
        """Call *what* in *seconds*."""
        self.at(self.now + seconds, what, *arguments)

    def run(self, until: float) -> None:
        """Let everything happen up to *until*."""
        while self._events and self._events[0][0] <= until:
            self.now, _, what, arguments = heapq.heappop(self._events)
            what(*arguments)
        self.now = until
