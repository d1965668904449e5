"""What a text is about: a bounded pool of encoder threads behind a cache of exact texts."""

import asyncio
import os
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from ext_proc.errors import SourceDown
from models.clusters import Clusters
from models.embedder import Embedder
from policy.types import Intent

NICE = 10
"""How far the encoder's threads stand behind the event loop's and Envoy's where there are more than cores."""


class Intents:
    """Never blocks the event loop; a full queue or a closed pool is SourceDown."""

    def __init__(
        self, opened: Callable[[], Embedder], clusters: Clusters, *, threads: int, queue: int, cache: int
    ) -> None:
        """*opened* is called once, in one of our threads: those an encoder starts itself stand behind too."""
        self._clusters = clusters
        self.bundle = clusters.bundle.manifest.id
        """The active bundle's id."""
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="encoder", initializer=_give_way)
        self._embedder = self._pool.submit(opened).result()
        self._most = threads + queue
        self._cache: OrderedDict[str, Intent | None] = OrderedDict()
        self._cache_size = cache
        self._until: dict[str, float] = {}
        self._running: dict[str, asyncio.Task[Intent | None]] = {}
        self.truncated = 0
        """Texts longer than the encoder's window so far."""
        self.late = 0
        """Texts left out because their turn came too late."""

    def __contains__(self, text: str) -> bool:
        """Seen before: `known` answers at once."""
        return text in self._cache

    def known(self, text: str) -> Intent | None:
        """The intent of a text seen before; None: there is nothing in it to read."""
        self._cache.move_to_end(text)
        return self._cache[text]

    def begin(self, text: str, until: float) -> "asyncio.Task[Intent | None]":
        """Start encoding *text* for who waits *until* then, on the event loop's clock. Equal texts share one run.

        A text that is still in the queue when nobody waits for it any more is left out (after a burst, new prompts
        would otherwise wait behind it); once begun its answer is kept. Raises SourceDown when as many wait as may.
        """
        running = self._running.get(text)
        self._until[text] = max(until, self._until.get(text, until))
        if running is not None:
            return running
        if len(self._running) >= self._most:
            del self._until[text]
            raise SourceDown("intents: the encoder's queue is full")
        running = self._running[text] = asyncio.get_running_loop().create_task(self._read(text))
        return running

    def close(self) -> None:
        """Let running texts end, take no new ones."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _read(self, text: str) -> Intent | None:
        try:
            intent, cut = await asyncio.get_running_loop().run_in_executor(self._pool, self._assign, text)
        finally:
            del self._running[text], self._until[text]
        self.truncated += cut
        self._cache[text] = intent
        if len(self._cache) > self._cache_size:
            self._cache.popitem(last=False)
        return intent

    def _assign(self, text: str) -> tuple[Intent | None, bool]:
        """In a thread of the pool: what the text is about, and whether its middle was left out."""
        if time.monotonic() > self._until[text]:
            self.late += 1
            raise SourceDown("intents: nobody waits for this text any more")
        embedding = self._embedder.embed(text)
        found = self._clusters.of(embedding)
        if found is None:
            return None, embedding.truncated
        intent = Intent(found.intent, found.confidence, found.similarity, found.nearest, self.bundle)
        return intent, embedding.truncated


def _give_way() -> None:
    """A full queue takes every core for as long as it lasts; without this, answers that need no encoder came after
    Envoy's own time-out (64 new prompts at once on two cores: 44 of 256 requests went undecided; with it none)."""
    if sys.platform == "linux":  # there a thread has a priority of its own
        thread = threading.get_native_id()
        with suppress(OSError):  # a sandbox that forbids it: slower under load, and no reason to do without intents
            os.setpriority(os.PRIO_PROCESS, thread, min(19, os.getpriority(os.PRIO_PROCESS, thread) + NICE))
