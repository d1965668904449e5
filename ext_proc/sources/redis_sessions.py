"""Sessions shared by all replicas, in Redis: milliseconds or nothing."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct
from redis.asyncio import ConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from ext_proc import config
from ext_proc.errors import ConfigError, SourceDown
from policy.types import Binding

log = logging.getLogger(__name__)

CONNECTIONS = 16
WRITES = 1000
"""Bindings waiting to be written; under a flood the newest are dropped and counted, no request waits."""
WRITERS = 4
PATIENCE = 0.9
"""Share of the budget after which Redis counts as slow."""
FAILURES = 5
"""So many in a row open the breaker."""
AGAIN_S = 1.0
"""How often an open breaker lets one try through."""
PREFIX = "isogloss:session:"


class _Value(Struct, frozen=True, array_like=True):
    """What Redis holds. It carries its own key: an answer meant for somebody else is told by it."""

    key: str
    binding: Binding


class RedisSessions:
    """Every error, time-out and full pool is SourceDown; after a run of failures Redis is not even asked for a second.

    One server by its URL; a cluster or sentinels would be another client behind the same `_ask`.
    """

    remote = True

    def __init__(self, settings: config.Sessions, clock: Callable[[], float] = time.monotonic) -> None:
        """Raises ConfigError when the URL is none of Redis's. Connects when first asked."""
        # Less than a request's own patience, so that it is we who give up and learn that Redis is slow.
        seconds = settings.budget_ms / 1000.0 * PATIENCE
        try:
            self._pool = ConnectionPool.from_url(
                settings.url,
                max_connections=CONNECTIONS,
                socket_timeout=seconds,
                socket_connect_timeout=seconds,
                retry=Retry(NoBackoff(), 0),  # a second try would not fit into the budget
                # In RESP3 redis-py 8 listens for maintenance notices, and for their sake takes a connection with an
                # unread answer on it for a good one. RESP2 also greets in a round trip less.
                protocol=2,
            )
        except ValueError as exc:
            raise ConfigError(f"sessions.url: {exc}") from exc
        self._redis = Redis(connection_pool=self._pool)
        # Waiting here and not in the pool: a crowd of ours is no failure of Redis.
        self._gate = asyncio.Semaphore(CONNECTIONS)
        self._ttl_ms = int(settings.ttl_s * 1000)
        self._seconds = seconds
        self._clock = clock
        self._failures = 0
        self._closed_until = 0.0
        self._writes: asyncio.Queue[tuple[str, Binding]] = asyncio.Queue(WRITES)
        self._writers: list[asyncio.Task[None]] = []
        self.dropped = 0
        """Bindings not written: the queue was full or Redis away."""
        self.foreign = 0
        """Answers that carried another key. Anything but 0 is a bug of a client library."""

    async def binding(self, key: str) -> Binding | None:
        # GETEX: reading a session is using it, so the read renews its life.
        raw = await self._ask(partial(self._redis.getex, PREFIX + key, px=self._ttl_ms))
        if raw is None:
            return None
        try:
            value = msgspec.msgpack.decode(raw, type=_Value)
        except msgspec.DecodeError:
            return None  # another version's; the next bind overwrites it
        if value.key != key:
            self.foreign += 1
            await self._pool.disconnect()  # answers may be out of step with questions: begin anew
            raise SourceDown("sessions: an answer was for another key")
        return value.binding

    def bind(self, key: str, binding: Binding) -> None:
        if not self._writers:
            self._writers = [asyncio.get_running_loop().create_task(self._write()) for _ in range(WRITERS)]
        try:
            self._writes.put_nowait((key, binding))
        except asyncio.QueueFull:
            self.dropped += 1

    async def close(self) -> None:
        """Write what waits, within a second, and disconnect."""
        if self._writers:
            try:
                async with asyncio.timeout(1.0):
                    await self._writes.join()
            except TimeoutError:
                self.dropped += self._writes.qsize()
            for task in self._writers:
                task.cancel()
        ended = await asyncio.gather(*self._writers, return_exceptions=True)
        await self._pool.disconnect()
        for result in ended:
            if isinstance(result, Exception):
                raise result

    async def _write(self) -> None:
        while True:
            key, binding = await self._writes.get()
            value = msgspec.msgpack.encode(_Value(key, binding))
            try:
                await self._ask(partial(self._redis.set, PREFIX + key, value, px=self._ttl_ms))
            except SourceDown:
                self.dropped += 1
            finally:
                self._writes.task_done()

    async def _ask(self, command: Callable[[], Awaitable[Any]]) -> Any:
        """One command within the budget, if the breaker lets it.

        Cancelled on the way, the connection is closed by redis-py and not given to the next one with the answer unread.
        """
        now = self._clock()
        if self._failures >= FAILURES:
            if now < self._closed_until:
                raise SourceDown("sessions: Redis failed repeatedly and is given a rest")
            self._closed_until = now + AGAIN_S  # this one may try; the others wait for how it ends
        asked = False
        try:
            async with asyncio.timeout(self._seconds), self._gate:
                asked = True
                answer = await command()
        except (RedisError, OSError, TimeoutError) as exc:
            if asked:
                self._failed(exc)
            raise SourceDown("sessions") from exc
        if self._failures >= FAILURES:
            log.info("sessions: Redis answers again")
        self._failures = 0
        return answer

    def _failed(self, exc: Exception) -> None:
        self._failures += 1
        if self._failures == FAILURES:
            self._closed_until = self._clock() + AGAIN_S
            log.warning("sessions: Redis is not answering (%s); going on without", type(exc).__name__)
