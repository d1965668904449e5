"""Claims about who is asking again, and about what both stores remember."""

import asyncio
import re
import time
import tracemalloc
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ext_proc import config
from ext_proc.config import MIB
from ext_proc.sources.redis_sessions import RedisSessions
from ext_proc.sources.sessions import ENTRY_BYTES, MemorySessions, Session, Sessions, identify
from policy.types import Binding
from tests.ext_proc.redis_server import RedisServer

SECRET = b"sixteen bytes and more"
HEX = re.compile(r"[0-9a-f]{64}")
NOW = time.time()
BINDING = Binding("10.0.0.1:8000", "pod-1", "coding", 7, NOW)


def who(
    headers: dict[str, str] | None = None, user: str | None = None, address: str | None = None, **settings: Any
) -> Session:
    return identify(headers or {}, user, address, config.Sessions(**settings), SECRET)


def test_header_then_cookie_then_user_then_address_then_a_new_one():
    headers = {"x-session-id": "from-header", "cookie": "a=1; sid=from-cookie; b=2"}
    asked: dict[str, Any] = {"cookie": "sid", "by_address": True}
    everything = who(headers, "ann", "8.8.8.8", **asked)
    assert (everything.id, everything.found_by) == ("from-header", "header")
    del headers["x-session-id"]
    by_cookie = who(headers, "ann", "8.8.8.8", **asked)
    assert (by_cookie.id, by_cookie.found_by) == ("from-cookie", "cookie")
    assert who({}, "ann", "8.8.8.8", **asked).found_by == "user"
    assert who({}, None, "8.8.8.8", **asked).found_by == "address"
    assert who({}, "", None, **asked).found_by == "made"


def test_cookie_user_and_address_count_only_when_asked_for():
    assert who({"cookie": "sid=x"}).found_by == "made"
    assert who({}, "ann", by_user=False).found_by == "made"
    assert who({}, None, "8.8.8.8").found_by == "made"


def test_a_made_id_has_128_random_bits_and_no_two_are_equal():
    made = {who().id for _ in range(1000)}
    assert len(made) == 1000
    assert all(re.fullmatch("[0-9a-f]{32}", id_) for id_ in made)


def test_the_id_a_client_is_given_leads_back_to_the_session_it_came_from():
    first = who({}, "ann")
    again = who({"x-session-id": first.id}, "ann")
    assert (again.key, again.found_by) == (first.key, "header")


def test_a_user_or_an_address_never_travels_as_it_is():
    for session in (who({}, "ann@example.org"), who({}, None, "8.8.8.8", by_address=True)):
        assert re.fullmatch("[0-9a-f]{32}", session.id)
        assert HEX.fullmatch(session.key)


def test_a_user_and_an_address_of_the_same_spelling_are_two_sessions():
    assert who({}, "8.8.8.8").key != who({}, None, "8.8.8.8", by_address=True).key


def test_the_key_says_nothing_about_the_id_and_depends_on_the_secret():
    session = who({"x-session-id": "abc"})
    assert HEX.fullmatch(session.key)
    assert identify({"x-session-id": "abc"}, None, None, config.Sessions(), b"another secret").key != session.key


def test_the_same_id_under_two_tokens_is_two_sessions():
    keys = {who({"x-session-id": "abc", "authorization": token}).key for token in ("Bearer a", "Bearer b", "")}
    assert len(keys) == 3
    assert who({"x-session-id": "abc", "x-team": "a"}, tenant_header="x-team").key in {
        who({"x-session-id": "abc", "x-team": "a", "authorization": "z"}, tenant_header="x-team").key
    }


@given(st.text(), st.text(), st.text(), st.text())
def test_no_two_pairs_of_tenant_and_user_meet(tenant: str, user: str, tenant2: str, user2: str):
    one, two = who({"authorization": tenant}, user or "u"), who({"authorization": tenant2}, user2 or "u")
    assert (one.key == two.key) == ((tenant, user or "u") == (tenant2, user2 or "u"))
    assert who({"authorization": "a"}, "bc").key != who({"authorization": "ab"}, "c").key


HOSTILE = [
    "",
    " ",
    "a b",
    "x\r\nx-evil: 1",
    "x\n",
    "\0",
    "é",
    "😀",
    "a" * 129,
    "a" * 5_000_000,
    "a, b",
    "<script>",
    '"',
    "\x7f",
]


@pytest.mark.parametrize("hostile", HOSTILE)
def test_an_id_that_could_do_harm_is_replaced_and_never_sent_on(hostile: str):
    for headers in ({"x-session-id": hostile}, {"cookie": f"sid={hostile}"}):
        session = who(headers, cookie="sid")
        assert session.found_by == "made"
        assert re.fullmatch("[0-9a-f]{32}", session.id)


@pytest.mark.parametrize("good", ["a", "a" * 128, "3f2504e0-4f89-41d3-9a0c-0305e82c3301", "aGk=", "a.b_c:d~e+f/g", "0"])
def test_an_ordinary_id_is_kept(good: str):
    assert who({"x-session-id": good}).id == good
    assert who({"cookie": f'x=1; sid="{good}"'}, cookie="sid").id == good


@given(st.text(max_size=300), st.text(max_size=300), st.text(max_size=300))
def test_whatever_comes_only_a_safe_id_leaves(header: str, cookie: str, user: str):
    session = who(
        {"x-session-id": header, "cookie": cookie, "authorization": cookie}, user, user, cookie="sid", by_address=True
    )
    assert re.fullmatch(r"[A-Za-z0-9._:~=+/-]{1,128}", session.id, re.ASCII)
    assert HEX.fullmatch(session.key)


@pytest.mark.parametrize(
    "cookies", ["sid=x", " sid=x ;b", 'a={"b": 1}; sid=x', "a[]=é; sid=x; sid=y", ";;=;sid=x", "other-sid=z; sid=x"]
)
def test_our_cookie_is_found_among_odd_ones(cookies: str):
    assert who({"cookie": cookies}, cookie="sid").id == "x"


def test_hostile_users_and_tokens_are_only_hashed():
    for hostile in [*HOSTILE[1:], "\ud800"]:
        session = who({"authorization": hostile}, hostile)
        assert (session.found_by, len(session.id)) == ("user", 32)


# Both stores.

Make = Callable[..., Sessions]


@pytest.fixture(scope="session")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Any:
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    yield server
    server.end()


@pytest.fixture(params=["memory", "redis"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Make]:
    """Makes stores, all over the same memory if they share one."""
    made: list[Sessions] = []

    def make(**settings: Any) -> Sessions:
        if request.param == "memory":
            one: Sessions = MemorySessions(config.Sessions(**settings))
        else:
            url = request.getfixturevalue("redis").url
            patient = {"budget_ms": 2000.0, "url": url, "secret": SECRET.decode(), "store": "redis"}
            one = RedisSessions(config.Sessions(**{**patient, **settings}))
        made.append(one)
        return one

    yield make
    for one in made:
        await one.close()


async def remembered(sessions: Sessions, key: str, binding: Binding) -> None:
    """Binding may take a moment, since no request waits for it."""
    sessions.bind(key, binding)
    async with asyncio.timeout(10):
        while await sessions.binding(key) != binding:
            await asyncio.sleep(0.005)


async def test_a_session_never_seen_has_no_binding(store: Make, request: pytest.FixtureRequest):
    assert await store().binding(request.node.name) is None


@pytest.mark.parametrize(
    "binding", [BINDING, Binding("[fd00::1]:8000", "", began=NOW), Binding("10.0.0.1:8000", "é", None, 0, NOW)]
)
async def test_what_was_bound_comes_back_whole(store: Make, binding: Binding):
    await remembered(store(), "whole", binding)


async def test_the_latest_binding_counts(store: Make):
    sessions = store()
    await remembered(sessions, "latest", BINDING)
    await remembered(sessions, "latest", Binding("10.0.0.2:8000", "pod-2", began=NOW))


async def test_keys_do_not_meet(store: Make):
    sessions = store()
    for i in range(50):
        await remembered(sessions, f"key-{i}", Binding(f"10.0.0.{i}:80", str(i), began=NOW))
    for i in range(50):
        assert await sessions.binding(f"key-{i}") == Binding(f"10.0.0.{i}:80", str(i), began=NOW)


async def test_a_session_in_use_lives_on_and_an_unused_one_ends(store: Make):
    sessions = store(ttl_s=0.5)
    await remembered(sessions, "sliding", BINDING)
    for _ in range(8):
        await asyncio.sleep(0.2)
        assert await sessions.binding("sliding") == BINDING
    await asyncio.sleep(0.8)
    assert await sessions.binding("sliding") is None


async def test_a_session_in_use_ends_all_the_same_when_it_is_too_old(store: Make):
    sessions = store(ttl_s=1.0, max_age_s=1.0)
    sessions.bind("aged", Binding("10.0.0.1:8000", "pod-1"))
    began, seen = time.monotonic(), 0
    while (bound := await sessions.binding("aged")) is not None or seen == 0:
        if bound is not None:
            sessions.bind("aged", bound)  # as every request of the conversation does
            seen += 1
        await asyncio.sleep(0.1)
        assert time.monotonic() - began < 5
    assert seen > 3
    assert time.monotonic() - began > 0.9
    sessions.bind("aged", Binding("10.0.0.2:8000", "pod-2"))  # and another may begin
    async with asyncio.timeout(5):
        while (again := await sessions.binding("aged")) is None or again.node != "10.0.0.2:8000":
            await asyncio.sleep(0.01)


async def test_binding_never_waits_and_never_raises(store: Make):
    sessions = store()
    for i in range(5000):
        sessions.bind(f"flood-{i}", BINDING)


# Only in memory.


async def test_the_least_recently_used_session_goes_first():
    sessions = MemorySessions(config.Sessions(memory_mb=1))
    most = 1024 * 1024 // ENTRY_BYTES
    for i in range(most):
        sessions.bind(f"key-{i}", BINDING)
    assert await sessions.binding("key-0") == BINDING
    sessions.bind("one-more", BINDING)
    assert [await sessions.binding(key) is not None for key in ("key-0", "key-1", "one-more")] == [True, False, True]


@pytest.mark.parametrize("memory_mb", [4, 12])
async def test_memory_stays_within_the_megabytes_given_whoever_asks(memory_mb: int):
    tracemalloc.start()
    sessions = MemorySessions(config.Sessions(memory_mb=memory_mb))
    for i in range(memory_mb * 4000):
        hostile = who({"x-session-id": "\r\n😀" * (i % 50), "authorization": f"Bearer {i}" * 20}, f"user {i} " * 20)
        sessions.bind(hostile.key, Binding("10.0.0.1:8000", "pod-1", "coding", 10**18 - i))
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert memory_mb * 0.6 < held / MIB
    assert peak / MIB < memory_mb


async def test_in_memory_a_session_ends_on_the_callers_clock():
    now = 0.0
    sessions = MemorySessions(config.Sessions(ttl_s=10.0), clock=lambda: now)
    sessions.bind("a", Binding("10.0.0.1:8000", "pod-1"))
    now = 10.0
    assert await sessions.binding("a") == Binding("10.0.0.1:8000", "pod-1", began=0.0)
    now = 20.1
    assert await sessions.binding("a") is None
