"""A stand-in's engine: seats, a queue, a speed and a prefix cache. No model: the words are made up."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import accumulate, cycle, islice

WORDS = (
    " the", " answer", " depends", " on", " where", " you", " ask", " and", " what", " you", " mean", " by", " it",
)  # fmt: skip
BLOCK = 16
"""Tokens a cache block holds, as vLLM's default."""
TOKEN_BYTES = 4


@dataclass
class Engine:
    """How fast one pod is, and how busy."""

    tokens_per_s: float = 200.0
    prefill_tokens_per_s: float = 4000.0
    seats: int = 16
    """Requests decoded at once; one more waits."""
    kv_tokens: int = 20_000
    running: int = 0
    waiting: int = 0
    held: int = 0
    """Tokens of the running requests."""
    queries: int = 0
    hits: int = 0
    prompts: int = 0
    generated: int = 0
    finished: int = 0
    _cache: OrderedDict[int, None] = field(default_factory=OrderedDict)
    _free: asyncio.Semaphore | None = None

    def set_seats(self, seats: int) -> None:
        """Another number of seats, for requests to come."""
        self.seats, self._free = seats, None

    @property
    def kv_usage(self) -> float:
        """Share of the cache held by running requests."""
        return min(1.0, self.held / self.kv_tokens)

    @asynccontextmanager
    async def seat(self, prompt: bytes, max_tokens: int) -> AsyncIterator[int]:
        """Wait for a seat and read the prompt; gives the prompt's tokens."""
        free = self._free = self._free or asyncio.Semaphore(self.seats)
        tokens = max(1, len(prompt) // TOKEN_BYTES)
        self.waiting += 1
        try:
            await free.acquire()
        finally:
            self.waiting -= 1
        self.running += 1
        self.held += tokens + max_tokens
        try:
            await asyncio.sleep((tokens - self._cached(prompt, tokens)) / self.prefill_tokens_per_s)
            yield tokens
            self.finished += 1
        finally:
            self.held -= tokens + max_tokens
            self.running -= 1
            free.release()

    async def words(self, count: int) -> AsyncIterator[str]:
        """*count* tokens at the engine's speed."""
        for word in islice(cycle(WORDS), count):
            await asyncio.sleep(1 / self.tokens_per_s)
            self.generated += 1
            yield word

    def _cached(self, prompt: bytes, tokens: int) -> int:
        """Tokens of the prompt's beginning that were seen before; what is new is remembered."""
        step = BLOCK * TOKEN_BYTES
        blocks = (prompt[i : i + step] for i in range(0, len(prompt) - step + 1, step))
        chain = list(accumulate(blocks, lambda before, block: hash((before, block)), initial=0))[1:]
        hit = next((i for i, block in enumerate(chain) if block not in self._cache), len(chain))
        for block in chain:
            self._cache[block] = None
            self._cache.move_to_end(block)
        while len(self._cache) > self.kv_tokens // BLOCK:
            self._cache.popitem(last=False)
        self.prompts += tokens
        self.queries += tokens
        self.hits += hit * BLOCK
        return hit * BLOCK
