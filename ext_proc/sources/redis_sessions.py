"""Sessions shared by all replicas, in Redis: milliseconds or nothing."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct
from redis.exceptions import RedisClusterException, RedisError

from ext_proc import config
from ext_proc.errors import SourceDown
from ext_proc.sources import patience, redis_url
from policy.types import Binding

log = logging.getLogger(__name__)

CONNECTIONS = 16
WRITES = 1000
"""Bindings waiting to be written; under a flood the newest are dropped and counted, no request waits."""
WRITERS = 4
PATIENCE = 0.9
"""Share of the budget after which Redis counts as slow: the rest is for finding out."""
FAILURES = 5
"""So many in a row open the breaker."""
AGAIN_S = 1.0
"""How often an open breaker lets one try through."""
COMMAND_S = 1.0
"""A command of nobody's request (a write, a new connection, an answer that comes too late) may take so long."""
PREFIX = "isogloss:session:"


class _Value(Struct, frozen=True, array_like=True):
    """What Redis holds. It carries its own key: an answer meant for somebody else is told by it."""

    key: str
    binding: Binding


class RedisSessions:
    """Every error, time-out and full pool is SourceDown; after a run of failures Redis is not even asked for a second.

    A command is a task of its own and runs to its end, however soon the request that asked stops waiting. So no answer
    is left unread on a connection for somebody else to read, and a connection that takes longer to make than a request
    may wait (TLS, a password, a database number, a cluster's map: several round trips) is there for the next one.
    """

    remote = True

    def __init__(
        self,
        settings: config.Sessions,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """Raises ConfigError when the URL is none of Redis's. Connects when first asked."""
        self._client = redis_url.connect(redis_url.read(settings.url), CONNECTIONS)
        self._redis = self._client.redis
        # Waiting here and not in the pool: a crowd of ours is no failure of Redis.
        self._gate = asyncio.Semaphore(CONNECTIONS)
        self._ttl_ms = int(settings.ttl_s * 1000)
        self._max_age_s = settings.max_age_s
        self._seconds = settings.budget_ms / 1000.0 * PATIENCE
        self._clock = clock
        self._wall = wall
        self._closing = False
        self._running: set[asyncio.Task[Any]] = set()
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
            await self._client.disconnect()  # answers may be out of step with questions: begin anew
            raise SourceDown("sessions: an answer was for another key")
        return value.binding if self._left_s(value.binding) > 0 else None

    def bind(self, key: str, binding: Binding) -> None:
        if not self._writers:
            self._writers = [asyncio.get_running_loop().create_task(self._write()) for _ in range(WRITERS)]
        try:
            self._writes.put_nowait((key, binding))
        except asyncio.QueueFull:
            self.dropped += 1

    def _left_s(self, binding: Binding) -> float:
        """Seconds until its session is too old."""
        return self._max_age_s if binding.began is None else binding.began + self._max_age_s - self._wall()

    async def close(self) -> None:
        """Write what waits, within a second, and disconnect."""
        if self._writers:
            try:
                async with asyncio.timeout(1.0):
                    await self._writes.join()
            except TimeoutError:
                self.dropped += self._writes.qsize()
        self._closing = True
        tasks = [*self._writers, *self._running]
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        await self._client.disconnect()
        for result in ended:
            if isinstance(result, Exception) and not isinstance(result, SourceDown):
                raise result

    async def _write(self) -> None:
        while not self._closing:  # a library that loses a cancellation must not keep us
            key, binding = await self._writes.get()
            try:
                self._allowed()
                if binding.began is None:
                    binding = msgspec.structs.replace(binding, began=self._wall())
                lives_ms = int(min(self._ttl_ms, max(1.0, self._left_s(binding) * 1000)))
                value = msgspec.msgpack.encode(_Value(key, binding))
                await self._gate.acquire()
                await self._run(partial(self._redis.set, PREFIX + key, value, px=lives_ms))
            except SourceDown:
                self.dropped += 1
            finally:
                self._writes.task_done()

    async def _ask(self, command: Callable[[], Awaitable[Any]]) -> Any:
        """One command for a request: answered within the budget, if the breaker lets it, or not at all."""
        self._allowed()
        loop = asyncio.get_running_loop()
        due = loop.time() + self._seconds
        try:
            async with asyncio.timeout_at(due):
                await self._gate.acquire()
        except TimeoutError as exc:
            raise SourceDown("sessions: more ask than Redis is let") from exc
        began = loop.time()
        running = loop.create_task(self._run(command))
        self._running.add(running)
        running.add_done_callback(self._ended)
        if await patience.ends(running, due):
            return running.result()
        # A request that waited most of its time for its turn, or for our own loop, says nothing about Redis.
        if due - began > self._seconds / 2 and not patience.was_late(due):
            self._failed("no answer in time")
        raise SourceDown("sessions")

    def _ended(self, running: "asyncio.Task[Any]") -> None:
        """Nobody may be waiting for it any more: how it failed is counted already, and no traceback is owed."""
        self._running.discard(running)
        if not running.cancelled() and isinstance(error := running.exception(), Exception):
            log.debug("sessions: %s", error)

    async def _run(self, command: Callable[[], Awaitable[Any]]) -> Any:
        """One command to its end, then the gate is open for another."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with asyncio.timeout_at(began + COMMAND_S):
                answer = await command()
        except TimeoutError as exc:
            if not patience.was_late(began + COMMAND_S):
                self._failed("no answer at all")
            raise SourceDown("sessions") from exc
        except (RedisError, RedisClusterException, OSError) as exc:
            self._failed(type(exc).__name__)
            raise SourceDown("sessions") from exc
        finally:
            self._gate.release()
        if loop.time() - began <= self._seconds:
            if self._failures >= FAILURES:
                log.info("sessions: Redis answers again")
            self._failures = 0
        return answer

    def _allowed(self) -> None:
        """Raises SourceDown while the breaker is open; once a second it lets one try through."""
        if self._failures < FAILURES:
            return
        now = self._clock()
        if now < self._closed_until:
            raise SourceDown("sessions: Redis failed repeatedly and is given a rest")
        self._closed_until = now + AGAIN_S  # this one may try; the others wait for how it ends

    def _failed(self, how: str) -> None:
        self._failures += 1
        if self._failures == FAILURES:
            self._closed_until = self._clock() + AGAIN_S
            log.warning("sessions: Redis is not answering (%s); going on without", how)
