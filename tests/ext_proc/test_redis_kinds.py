"""Claims about every kind of Redis a URL can name: TLS, logins, clusters, sentinels, and what happens when one dies."""

import asyncio
import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from redis import Redis as Client
from redis.asyncio import Redis, SSLConnection
from redis.asyncio import RedisCluster as ClusterClient
from redis.crc import key_slot

from ext_proc import config
from ext_proc.errors import ConfigError, SourceDown
from ext_proc.sources import redis_url
from ext_proc.sources.redis_sessions import PREFIX, RedisSessions
from policy.types import Binding
from tests.ext_proc.redis_server import RedisCluster, RedisSentinels, RedisServer
from tests.ext_proc.test_redis_sessions import BINDING, LAG, NOW, asked, bound, opened
from tests.standin.running import free_ports

BUDGET_MS = 50.0
FAILOVER_S = 20.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RedisCluster]:
    made = RedisCluster(tmp_path)
    yield made
    made.end()


@pytest.fixture
def sentinels(tmp_path: Path) -> Iterator[RedisSentinels]:
    made = RedisSentinels(tmp_path)
    yield made
    made.end()


def many(count: int = 60) -> dict[str, Binding]:
    return {f"key-{i}": Binding(f"10.0.0.{i}:80", f"key-{i}", began=NOW) for i in range(count)}


async def all_bound(sessions: RedisSessions, keys: dict[str, Binding]) -> None:
    for key, binding in keys.items():
        await bound(sessions, key, binding)


async def back(sessions: RedisSessions, keys: dict[str, Binding]) -> tuple[float, float]:
    """Ask until every session is there again: seconds that took, and the longest any request waited."""
    began, longest = time.perf_counter(), 0.0
    while True:
        found = {}
        for key, binding in keys.items():
            asked_at = time.perf_counter()
            with contextlib.suppress(SourceDown):
                found[key] = await sessions.binding(key)
            longest = max(longest, time.perf_counter() - asked_at)
            sessions.bind(key, binding)
        if found == keys:
            return time.perf_counter() - began, longest
        assert all(binding is None or binding == keys[key] for key, binding in found.items())
        assert time.perf_counter() - began < FAILOVER_S
        await asyncio.sleep(0.05)


async def test_a_cluster_keeps_sessions_on_all_its_masters(cluster: RedisCluster):
    keys = many()
    async with opened(cluster.url) as sessions:
        await all_bound(sessions, keys)
        assert {key: await sessions.binding(key) for key in keys} == keys
    assert all(client.dbsize() > 5 for client in cluster.clients[:3])


async def test_a_slot_that_moved_is_found_where_it_went(cluster: RedisCluster):
    key = next(f"key-{i}" for i in range(1000) if key_slot(f"{PREFIX}key-{i}".encode()) < 5461)
    async with opened(cluster.url) as sessions:
        await bound(sessions, key)
        cluster.clients[0].delete(PREFIX + key)  # redis-cli --cluster reshard would carry it over
        cluster.move(key_slot((PREFIX + key).encode()), 1)
        await bound(sessions, key)
        assert (await asked(sessions, key, 20))[0] == 0
    assert cluster.clients[1].exists(PREFIX + key)


@pytest.mark.parametrize("how", ["killed", "hangs"])
async def test_a_masters_death_costs_requests_their_budget_at_most_until_its_replica_stands_in(
    cluster: RedisCluster, how: str
):
    keys = many(30)
    async with opened(cluster.url, BUDGET_MS) as sessions:
        await all_bound(sessions, keys)
        cluster.servers[0].end() if how == "killed" else cluster.servers[0].stop()
        seconds, longest = await back(sessions, keys)
        print(f"{how}: back after {seconds:.1f} s, longest {longest * 1000:.0f} ms")
        assert longest < BUDGET_MS / 1000 + LAG
        assert sessions.foreign == 0


@pytest.mark.parametrize("how", ["killed", "hangs"])
async def test_sentinels_lead_to_the_new_master(sentinels: RedisSentinels, how: str):
    keys = many(30)
    async with opened(sentinels.url, BUDGET_MS) as sessions:
        await all_bound(sessions, keys)
        sentinels.sentinels[0].stop()  # the one asked first says nothing, too
        sentinels.master.end() if how == "killed" else sentinels.master.stop()
        seconds, longest = await back(sessions, keys)
        print(f"{how}: back after {seconds:.1f} s, longest {longest * 1000:.0f} ms")
        assert longest < BUDGET_MS / 1000 + LAG
        assert sessions.foreign == 0
        sentinels.sentinels[0].go_on()


async def test_a_cluster_of_which_nobody_is_there_costs_the_budget_and_then_nothing():
    async with opened("redis+cluster://127.0.0.1:1,127.0.0.1:2", BUDGET_MS) as sessions:
        failed, longest = await asked(sessions, "key", 30)
        assert failed == 30
        assert longest < BUDGET_MS / 1000 + LAG


async def test_a_password_of_odd_characters_opens_server_and_cluster(tmp_path: Path):
    server = RedisServer(tmp_path, "--requirepass", "other")
    with Client(port=server.port, password="other") as client:
        client.acl_setuser("ann", enabled=True, passwords=["+p@ss/w:rd"], keys=["*"], categories=["+@all"])
    login = "ann:p%40ss%2Fw%3Ard@"
    async with opened(f"redis://{login}127.0.0.1:{server.port}/3") as sessions:
        await bound(sessions, "key")
    async with opened(f"redis://ann:wrong@127.0.0.1:{server.port}/3") as sessions:
        assert (await asked(sessions, "key"))[0] == 1
    server.end()
    cluster = RedisCluster(tmp_path, "--requirepass", "pw", "--masterauth", "pw", login=":pw@")
    async with opened(cluster.url) as sessions:
        await bound(sessions, "key")
    cluster.end()


async def test_a_unix_socket_needs_no_port(tmp_path: Path):
    server = RedisServer(tmp_path, "--unixsocket", str(tmp_path / "r.sock"))
    async with opened(f"unix://{tmp_path / 'r.sock'}?db=2") as sessions:
        await bound(sessions, "key")
    async with Redis(port=server.port, db=2) as client:
        assert await client.exists(PREFIX + "key")
    server.end()


async def test_tls_is_spoken_and_a_stranger_is_not_believed(tmp_path: Path):
    ca, strange = trustme.CA(), trustme.CA()
    ca.issue_cert("127.0.0.1", "localhost").private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    ca.cert_pem.write_to_path(tmp_path / "ca.pem")
    strange.cert_pem.write_to_path(tmp_path / "strange.pem")
    (port,) = free_ports(1)
    server = RedisServer(
        tmp_path, "--tls-port", str(port), "--tls-cert-file", str(tmp_path / "server.pem"),
        "--tls-key-file", str(tmp_path / "server.pem"), "--tls-auth-clients", "no",
        "--tls-ca-cert-file", str(tmp_path / "ca.pem"),
    )  # fmt: skip
    async with opened(f"rediss://127.0.0.1:{port}/0?ssl_ca_certs={tmp_path / 'ca.pem'}") as sessions:
        await bound(sessions, "key")
    async with opened(f"rediss://127.0.0.1:{port}/0?ssl_ca_certs={tmp_path / 'strange.pem'}") as sessions:
        assert (await asked(sessions, "key"))[0] == 1
    server.end()


async def test_a_redis_short_of_memory_forgets_the_oldest_and_goes_on(tmp_path: Path):
    server = RedisServer(tmp_path, "--maxmemory", "2mb", "--maxmemory-policy", "allkeys-lru")
    async with opened(server.url) as sessions, Redis.from_url(server.url) as client:
        await bound(sessions, "first")
        while not (await client.info("stats"))["evicted_keys"]:
            await client.mset({f"other-{time.perf_counter_ns()}-{i}": b"x" * 100 for i in range(500)})
        await bound(sessions, "newest")
        assert await sessions.binding("newest") == BINDING
        for _ in range(40):
            await client.mset({f"more-{time.perf_counter_ns()}-{i}": b"x" * 100 for i in range(500)})
        assert await sessions.binding("first") in (None, BINDING)
        assert sessions.dropped == 0
        assert (await asked(sessions, "newest", 10))[0] == 0
    server.end()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://h", "scheme"),
        ("redis+ring://h", "scheme"),
        ("unix+cluster:///r.sock", "Unix socket"),
        ("unix://r.sock", "begins with /"),
        ("redis://", "host:port"),
        ("redis://h:port", "host:port"),
        ("redis://h:99999", "host:port"),
        ("redis://a:1,b:2/0", "several hosts"),
        ("redis://h/zero", "number"),
        ("redis+cluster://a:1,b:2/1", "database 0 only"),
        ("redis+sentinel://a:1,b:2", "service"),
        ("redis://h?socket_timeout=1", "'socket_timeout' is none of"),
        ("redis://h?ssl_ca_certs=x", "'ssl_ca_certs' is none of"),
        ("rediss://h?ssl_cert_reqs=sometimes", "must be one of"),
    ],
)
def test_a_wrong_url_is_told_the_right_forms_and_never_repeated(url: str, said: str):
    secret = url.replace("://", "://user:hunter2@") if "unix" not in url and "://" in url else url
    for one in (url, secret):
        with pytest.raises(ConfigError, match=r"sessions\.url") as caught:
            RedisSessions(config.Sessions(store="redis", url=one, secret="sixteen bytes and more"))
        assert said in str(caught.value)
        assert redis_url.FORMS in str(caught.value)
        assert "hunter2" not in str(caught.value)


def test_a_url_is_read_as_other_projects_write_it():
    where = redis_url.read(
        "rediss+sentinel://ann:p%2Fw@s1,[::1]:7,s3:1/my/2?sentinel_password=x&ssl_check_hostname=false"
    )
    assert where.hosts == (("s1", 26379), ("::1", 7), ("s3", 1))
    assert (where.service, where.db, where.login) == ("my", 2, {"username": "ann", "password": "p/w"})
    assert (where.sentinel_login, where.tls) == ({"password": "x"}, {"ssl_check_hostname": False})


@pytest.mark.parametrize("group", ["", "+cluster", "+sentinel"])
def test_every_tls_option_is_one_redis_py_knows(group: str):
    """Without a server and without a loop, as `isogloss check` asks."""
    options = "ssl_ca_certs=a&ssl_certfile=b&ssl_keyfile=c&ssl_cert_reqs=optional&ssl_check_hostname=true"
    service = "name" if group == "+sentinel" else ""
    client = redis_url.connect(redis_url.read(f"rediss{group}://u:p@h:1/{service}?{options}"), 4)
    if isinstance(client.redis, ClusterClient):
        (node,) = client.redis.startup_nodes
        connection = node.acquire_connection()
    else:
        connection = client.redis.connection_pool.make_connection()
    assert isinstance(connection, SSLConnection)
    assert connection.ssl_context.ca_certs == "a"
    assert connection.password == "p"
