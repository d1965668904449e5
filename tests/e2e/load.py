"""Steady traffic while a test breaks something."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import httpx

from ext_proc import names
from tests.e2e.world import World

BODY = {"model": "standin", "messages": [{"role": "user", "content": "hello " * 200}], "max_tokens": 4}


@dataclass
class Load:
    """What came of the traffic: (when it was sent, when answered, status, decided)."""

    answers: list[tuple[float, float, int, bool]] = field(default_factory=list)
    stopped: bool = False

    def statuses(self, since: float = 0.0) -> Counter[int]:
        """Answers to requests sent after *since*, by status; 0 is a broken connection."""
        return Counter(status for sent, _, status, _ in self.answers if sent >= since)

    def undecided(self, since: float) -> int:
        """Requests sent after *since* that Envoy had to place without us."""
        return sum(not decided for sent, _, _, decided in self.answers if sent >= since)

    def last_undecided(self) -> float:
        """When the last request that went without us was sent."""
        return max((sent for sent, _, _, decided in self.answers if not decided), default=0.0)


@contextmanager
def load(world: World, threads: int = 6, pause: float = 0.01) -> Iterator[Load]:
    """Chat requests from *threads* clients, some with slow uploads, until the block is left."""
    made = Load()
    workers = [threading.Thread(target=_send, args=(world, made, pause, i % 2 == 1)) for i in range(threads)]
    for worker in workers:
        worker.start()
    try:
        yield made
    finally:
        made.stopped = True
        for worker in workers:
            worker.join(60)


def _send(world: World, made: Load, pause: float, slowly: bool) -> None:
    body = httpx.Request("POST", world.url, json=BODY).read()

    def trickle() -> Iterator[bytes]:
        half = len(body) // 2
        yield body[:half]
        time.sleep(0.02)
        yield body[half:]

    headers = {"content-type": "application/json"}
    with world.client() as client:
        while not made.stopped:
            sent = time.monotonic()
            try:
                content = trickle() if slowly else body
                answer = client.post("/v1/chat/completions", content=content, headers=headers)
                status, decided = answer.status_code, names.POOL in answer.headers
            except httpx.HTTPError:
                status, decided = 0, False
            made.answers.append((sent, time.monotonic(), status, decided))
            time.sleep(pause)
