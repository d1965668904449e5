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
    may wait (TLS, a password, a database number: several round trips) is there for the next one.

    One server by its URL; a cluster or sentinels would be another client behind the same `_run`.
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
                # The time-outs are ours, around the whole command. redis-py's own would go through asyncio.wait_for,
                # which before Python 3.12 can lose a cancellation.
                socket_timeout=None,
                socket_connect_timeout=None,
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
        tasks = [*self._writers, *self._running]
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        await self._pool.disconnect()
        for result in ended:
            if isinstance(result, Exception) and not isinstance(result, SourceDown):
                raise result

    async def _write(self) -> None:
        while True:
            key, binding = await self._writes.get()
            value = msgspec.msgpack.encode(_Value(key, binding))
            try:
                self._allowed()
                await self._gate.acquire()
                await self._run(partial(self._redis.set, PREFIX + key, value, px=self._ttl_ms))
            except SourceDown:
                self.dropped += 1
            finally:
                self._writes.task_done()

    async def _ask(self, command: Callable[[], Awaitable[Any]]) -> Any:
        """One command for a request: answered within the budget, if the breaker lets it, or not at all."""
        self._allowed()
        running = None
        try:
            async with asyncio.timeout(self._seconds):
                await self._gate.acquire()
                began = self._clock()
                running = asyncio.get_running_loop().create_task(self._run(command))
                self._running.add(running)
                running.add_done_callback(self._ended)
                return await asyncio.shield(running)
        except TimeoutError as exc:
            # A request that waited most of its time for its turn says nothing about Redis.
            if running is not None and self._clock() - began > self._seconds / 2:
                self._failed(exc)
            raise SourceDown("sessions") from exc

    def _ended(self, running: "asyncio.Task[Any]") -> None:
        """Nobody may be waiting for it any more: how it failed is counted already, and no traceback is owed."""
        self._running.discard(running)
        if not running.cancelled() and isinstance(error := running.exception(), Exception):
            log.debug("sessions: %s", error)

    async def _run(self, command: Callable[[], Awaitable[Any]]) -> Any:
        """One command to its end, then the gate is open for another."""
        began = self._clock()
        try:
            async with asyncio.timeout(COMMAND_S):
                answer = await command()
        except (RedisError, OSError, TimeoutError) as exc:
            self._failed(exc)
            raise SourceDown("sessions") from exc
        finally:
            self._gate.release()
        if self._clock() - began <= self._seconds:
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

    def _failed(self, exc: Exception) -> None:
        self._failures += 1
        if self._failures == FAILURES:
            self._closed_until = self._clock() + AGAIN_S
            log.warning("sessions: Redis is not answering (%s); going on without", type(exc).__name__)
