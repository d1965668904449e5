"""Claims about a Redis that is slow, gone, crowded or out of step: a request loses its session, never its time."""

import asyncio
import contextlib
import gc
import random
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import uvloop
from redis.asyncio import Redis

from ext_proc import config
from ext_proc.errors import ConfigError, SourceDown
from ext_proc.sources.redis_sessions import CONNECTIONS, FAILURES, PREFIX, RedisSessions
from ext_proc.sources.sessions import identify
from policy.types import Binding
from tests.ext_proc.redis_server import RedisServer, slow_wire

SECRET = "sixteen bytes and more"
NOW = time.time()
BINDING = Binding("10.0.0.1:8000", "pod-1", "coding", 7, NOW)
BACK_S = 10.0
LAG = 0.4
"""Seconds a busy machine may add to anything."""


@pytest.fixture
def redis(tmp_path: Path) -> Any:
    server = RedisServer(tmp_path)
    yield server
    server.end()


@contextlib.asynccontextmanager
async def opened(url: str, budget_ms: float = 2000.0) -> AsyncIterator[RedisSessions]:
    sessions = RedisSessions(config.Sessions(store="redis", url=url, secret=SECRET, budget_ms=budget_ms))
    try:
        yield sessions
    finally:
        await sessions.close()


async def bound(sessions: RedisSessions, key: str, binding: Binding = BINDING) -> None:
    """Bound and read back, within the time in which affinity has to be back."""
    async with asyncio.timeout(BACK_S):
        while True:
            sessions.bind(key, binding)
            await asyncio.sleep(0.02)
            with contextlib.suppress(SourceDown):
                if await sessions.binding(key) == binding:
                    return


async def asked(sessions: RedisSessions, key: str, times: int = 1) -> tuple[int, float]:
    """How many of so many look-ups failed, and the longest of them in seconds."""
    failed, longest = 0, 0.0
    for _ in range(times):
        began = time.perf_counter()
        try:
            await sessions.binding(key)
        except SourceDown:
            failed += 1
        longest = max(longest, time.perf_counter() - began)
    return failed, longest


async def test_a_url_that_is_none_of_rediss_is_refused():
    with pytest.raises(ConfigError, match=r"sessions\.url"):
        RedisSessions(config.Sessions(store="redis", url="http://127.0.0.1", secret=SECRET))


async def test_neither_ids_nor_tokens_are_ever_in_redis(redis: RedisServer):
    raw = ["the-session-id", "Bearer the-token", "ann@example.org"]
    settings = config.Sessions()
    found = [
        identify({"x-session-id": raw[0], "authorization": raw[1]}, None, None, settings, SECRET.encode()),
        identify({"authorization": raw[1]}, raw[2], None, settings, SECRET.encode()),
    ]
    async with opened(redis.url) as sessions:
        for session in found:
            await bound(sessions, session.key)
    async with Redis.from_url(redis.url) as client:
        held = b"\n".join([key + b"=" + await client.get(key) for key in await client.keys("*")])
    assert held.count(PREFIX.encode()) == 2
    for text in [*raw, "the-token", found[1].id]:
        assert text.encode() not in held


async def test_a_session_unused_is_forgotten_by_redis_itself(redis: RedisServer):
    async with opened(redis.url) as sessions:
        await bound(sessions, "key")
    async with Redis.from_url(redis.url) as client:
        assert 0 < await client.pttl(PREFIX + "key") <= 1_800_000


async def test_a_command_nobody_waits_for_any_more_ends_without_a_traceback(redis: RedisServer, caplog):
    async with opened(redis.url, budget_ms=50.0) as sessions:
        await bound(sessions, "key")
        redis.stop()
        assert (await asked(sessions, "key"))[0] == 1
        await asyncio.sleep(1.2)  # the command's own end
        gc.collect()
        redis.go_on()
    assert "never retrieved" not in caplog.text


@pytest.mark.parametrize("junk", [b"", b"\xc1", b"junk", b"\x92\xa3key\x80"])
async def test_a_value_of_another_version_is_no_binding_and_is_overwritten(redis: RedisServer, junk: bytes):
    async with opened(redis.url) as sessions, Redis.from_url(redis.url) as client:
        await client.set(PREFIX + "key", junk)
        assert await sessions.binding("key") is None
        await bound(sessions, "key")


async def test_a_value_that_carries_another_key_is_never_believed(redis: RedisServer):
    async with opened(redis.url) as sessions, Redis.from_url(redis.url) as client:
        await bound(sessions, "mine")
        await client.set(PREFIX + "yours", await client.get(PREFIX + "mine"))
        with pytest.raises(SourceDown):
            await sessions.binding("yours")
        assert sessions.foreign == 1
        assert await sessions.binding("mine") == BINDING


async def test_cancelled_look_ups_give_nobody_anothers_session(redis: RedisServer):
    chance = random.Random(5)
    keys = [f"key-{i}" for i in range(40)]
    async with opened(redis.url) as sessions:
        for i, key in enumerate(keys):
            await bound(sessions, key, Binding(f"10.0.0.{i}:80", key, began=NOW))
    async with slow_wire(redis.port, 0.02) as port, opened(f"redis://127.0.0.1:{port}/0") as sessions:

        async def look_up(key: str) -> str:
            task = asyncio.create_task(sessions.binding(key))
            if chance.random() < 0.3:
                for _ in range(chance.choice([1, 1, 1, 3])):  # impatient callers, too
                    await asyncio.sleep(chance.uniform(0.0, 0.03))
                    task.cancel()
            try:
                binding = await task
            except asyncio.CancelledError:
                return "cancelled"
            except SourceDown:
                return "down"
            assert binding is not None
            assert binding.identity == key
            return "right"

        outcomes: list[str] = []
        for _ in range(10):
            outcomes += await asyncio.gather(*(look_up(chance.choice(keys)) for _ in range(100)))
        assert sessions.foreign == 0
        assert outcomes.count("cancelled") > 150
        assert outcomes.count("right") + outcomes.count("cancelled") == 1000
        # No connection was lost on the way: as many as there may be can still be asked at once.
        again = await asyncio.gather(*(sessions.binding(key) for key in keys))
        assert [found and found.identity for found in again] == keys


async def test_closing_gives_up_on_writes_under_way(redis: RedisServer):
    """A cancellation that gets lost in a library would make a stopping service wait for ever."""
    async with slow_wire(redis.port, 0.001) as port:
        for _ in range(10):
            async with opened(f"redis://127.0.0.1:{port}/0") as sessions:
                for i in range(1000):
                    sessions.bind(f"key-{i}", BINDING)
                await asyncio.sleep(0.02)
                for writer in sessions._writers:
                    writer.cancel()
                async with asyncio.timeout(5):
                    await asyncio.gather(*sessions._writers, return_exceptions=True)
                sessions._writers.clear()


async def test_requests_that_stop_waiting_cost_redis_no_connections(redis: RedisServer):
    async with slow_wire(redis.port, 0.03) as port, opened(f"redis://127.0.0.1:{port}/0", 15) as sessions:
        sessions._failures = -1000  # the breaker is another claim
        for _ in range(50):
            assert (await asked(sessions, "key"))[0] == 1
        async with Redis.from_url(redis.url) as client:
            assert (await client.info("stats"))["total_connections_received"] <= CONNECTIONS + 2


async def test_a_connection_may_take_longer_to_make_than_a_request_may_wait(redis: RedisServer):
    # Choosing a database, as giving a password or TLS would, makes several round trips of a first question.
    async with slow_wire(redis.port, 0.05) as port, opened(f"redis://127.0.0.1:{port}/1", 100) as sessions:
        assert (await asked(sessions, "key"))[0] == 1
        await bound(sessions, "key")
        assert (await asked(sessions, "key", 3))[0] == 0


async def test_a_thousand_at_once_share_the_connections_there_are(redis: RedisServer):
    async with opened(redis.url, 30_000) as sessions, Redis.from_url(redis.url) as client:
        await bound(sessions, "key")
        found = await asyncio.gather(*(sessions.binding("key") for _ in range(1000)))
        assert found == [BINDING] * 1000
        assert len(await client.client_list()) <= CONNECTIONS + 1


async def test_a_crowd_that_redis_cannot_serve_in_time_is_not_taken_for_a_broken_redis(redis: RedisServer):
    async with slow_wire(redis.port, 0.1) as port, opened(f"redis://127.0.0.1:{port}/0") as sessions:
        await bound(sessions, "key")
        crowd = await asyncio.gather(*(sessions.binding("key") for _ in range(1000)), return_exceptions=True)
        assert BINDING in crowd
        assert all(one == BINDING or isinstance(one, SourceDown) for one in crowd)
        assert SourceDown in {type(one) for one in crowd}
        failed, _ = await asked(sessions, "key", 3)
        assert failed == 0


async def test_a_redis_that_hangs_costs_a_request_its_budget_at_most_and_soon_nothing(redis: RedisServer):
    budget = 0.05
    async with opened(redis.url, budget * 1000) as sessions:
        await bound(sessions, "key")
        redis.stop()
        failed, longest = await asked(sessions, "key", 300)
        assert failed == 300
        assert longest < budget + LAG
        began = time.perf_counter()
        await asked(sessions, "key", 1000)
        assert time.perf_counter() - began < 1.0, "an open breaker answers at once"
        redis.go_on()
        await bound(sessions, "key")


async def test_callers_less_patient_than_redis_is_slow_still_open_the_breaker(redis: RedisServer):
    budget = 0.05
    async with opened(redis.url, budget * 1000) as sessions:
        await bound(sessions, "key")
        redis.stop()
        for _ in range(10):
            with contextlib.suppress(TimeoutError, SourceDown):
                async with asyncio.timeout(budget):
                    await sessions.binding("key")
        began = time.perf_counter()
        await asked(sessions, "key", 100)
        assert time.perf_counter() - began < 20 * budget
        redis.go_on()


async def test_a_redis_that_dies_and_comes_back_is_used_again(redis: RedisServer):
    async with opened(redis.url, 50) as sessions:
        await bound(sessions, "key")
        await asyncio.gather(*(asked(sessions, "key", 3) for _ in range(CONNECTIONS)))  # every connection is open
        redis.end()
        failed, longest = await asked(sessions, "key", 50)
        assert failed == 50
        assert longest < 0.05 + LAG
        sessions.bind("lost", BINDING)
        redis.start()
        await bound(sessions, "key")


async def test_without_any_redis_nothing_waits_and_what_was_not_written_is_counted():
    async with opened("redis://127.0.0.1:1/0", 50) as sessions:
        for i in range(3000):
            sessions.bind(f"key-{i}", BINDING)
        failed, longest = await asked(sessions, "key", 20)
        assert failed == 20
        assert longest < 0.05 + LAG
    assert sessions.dropped == 3000


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize(("busy_s", "free_s"), [(0.004, 0.0), (0.03, 0.001), (0.2, 0.05)])
def test_a_busy_event_loop_is_not_taken_for_a_slow_redis(redis: RedisServer, loop: Any, busy_s: float, free_s: float):
    """What keeps the loop is ours: the answer lies in the socket when the time is over, and is read all the same."""

    async def keep_busy() -> None:
        while True:
            time.sleep(busy_s)  # noqa: ASYNC251 - this is what is tested
            await asyncio.sleep(free_s)

    async def ask() -> tuple[int, int]:
        async with opened(redis.url, budget_ms=10.0) as sessions:
            await bound(sessions, "key")
            busy = asyncio.create_task(keep_busy())
            missed = sum([(await asked(sessions, "key"))[0] for _ in range(40)])
            busy.cancel()
            return missed, sessions._failures

    with asyncio.Runner(loop_factory=loop) as runner:
        missed, failures = runner.run(ask())
    assert missed <= 2
    assert failures == 0


async def test_a_redis_that_hangs_is_known_to_hang_on_a_busy_loop_too(redis: RedisServer):
    async with opened(redis.url, budget_ms=10.0) as sessions:
        await bound(sessions, "key")
        redis.stop()
        began = time.monotonic()
        while sessions._failures < FAILURES:
            await asked(sessions, "key")
            time.sleep(0.02)  # noqa: ASYNC251
            assert time.monotonic() - began < 10
        began = time.perf_counter()
        await asked(sessions, "key", 100)
        assert time.perf_counter() - began < 1.0, "an open breaker answers at once"
        redis.go_on()
