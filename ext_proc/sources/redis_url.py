"""Which Redis a URL names: one server, a cluster, or the master that sentinels know of."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from redis.asyncio import Connection, ConnectionPool, Redis, RedisCluster, Sentinel, SSLConnection
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.connection import UnixDomainSocketConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from ext_proc.errors import ConfigError

FORMS = (
    "redis://[user:password@]host[:port][/db], unix:///path[?db=0], "
    "redis+cluster://host[:port][,host[:port]…] or redis+sentinel://host[:port][,host[:port]…]/service[/db]; "
    "with TLS rediss://, rediss+cluster://, rediss+sentinel://"
)
HANGS_S = 0.4
"""A sentinel or a cluster's node silent for so long is passed over for the next one."""

_TLS = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname")
_SENTINELS = ("sentinel_username", "sentinel_password")
_REQUIRED = {"ssl_cert_reqs": ("none", "optional", "required"), "ssl_check_hostname": ("true", "false")}


class Where(NamedTuple):
    """A URL taken apart. *hosts* is empty for a Unix socket, whose path is *service*'s place."""

    kind: Literal["server", "unix", "cluster", "sentinel"]
    hosts: tuple[tuple[str, int], ...]
    service: str
    login: Mapping[str, Any]
    sentinel_login: Mapping[str, Any]
    db: int
    tls: Mapping[str, Any] | None


class Client(NamedTuple):
    """Commands go to *redis*; *disconnect* drops every connection, and the next command makes new ones."""

    redis: "Redis | RedisCluster"
    disconnect: Callable[[], Awaitable[None]]


def read(url: str) -> Where:
    """Raises ConfigError; its text never holds the URL, which may hold a password."""
    scheme, found, rest = url.partition("://")
    base, _, group = scheme.partition("+")
    if not found or base not in ("redis", "rediss", "unix") or group not in ("", "cluster", "sentinel"):
        raise _wrong("the scheme is none of Redis's")
    if base == "unix" and group:
        raise _wrong("a cluster or sentinels are reached by host and port, not by a Unix socket")
    rest, _, query = rest.partition("?")
    userinfo, _, place = rest.rpartition("@")
    options = _options(query, tls=base == "rediss", sentinel=group == "sentinel")
    kind: Any = "unix" if base == "unix" else group or "server"
    hosts, _, path = ("", "", place) if kind == "unix" else place.partition("/")
    service, _, number = path.partition("/") if kind == "sentinel" else ("", "", path)
    if kind == "unix":
        if not path.startswith("/"):
            raise _wrong("a Unix socket's path begins with /")
        service, number = unquote(path), ""
    elif kind == "sentinel" and not service:
        raise _wrong("sentinels are asked for a service by its name, and there is none")
    user, _, password = userinfo.partition(":")
    return Where(
        kind=kind,
        hosts=() if kind == "unix" else _hosts(hosts, kind),
        service=unquote(service) if kind == "sentinel" else service,
        login={k: unquote(v) for k, v in (("username", user), ("password", password)) if v},
        sentinel_login={k.removeprefix("sentinel_"): v for k, v in options.items() if k in _SENTINELS},
        db=_database(options.get("db", number), kind),
        tls={k: v == "true" if k == "ssl_check_hostname" else v for k, v in options.items() if k in _TLS}
        if base == "rediss"
        else None,
    )


def connect(where: Where, connections: int) -> Client:
    """A client that connects when first asked, with at most so many connections to a server."""
    match where.kind:
        case "cluster":
            return _cluster(where, connections)
        case "sentinel":
            return _sentinel(where, connections)
        case _:
            return _server(where, connections)


def _common() -> dict[str, Any]:
    return {
        "retry": Retry(NoBackoff(), 0),  # a second try would not fit into a request's budget
        # In RESP3 redis-py 8 listens for maintenance notices, and for their sake takes a connection with an
        # unread answer on it for a good one. RESP2 also greets in a round trip less.
        "protocol": 2,
        # The time-outs are the caller's, around the whole command. redis-py's own would go through asyncio.wait_for,
        # which before Python 3.12 can lose a cancellation.
        "socket_timeout": None,
        "socket_connect_timeout": None,
    }


def _server(where: Where, connections: int) -> Client:
    if where.kind == "unix":
        to: dict[str, Any] = {"connection_class": UnixDomainSocketConnection, "path": where.service}
    else:
        ((host, port),) = where.hosts
        to = {"connection_class": Connection if where.tls is None else SSLConnection, "host": host, "port": port}
    pool = ConnectionPool(
        max_connections=connections, db=where.db, **to, **where.login, **(where.tls or {}), **_common()
    )
    return Client(Redis(connection_pool=pool), pool.disconnect)


def _cluster(where: Where, connections: int) -> Client:
    """Its nodes must time out by themselves: only then does the client look where a hanging node's keys went."""
    common = _common() | {
        "socket_timeout": HANGS_S,
        "socket_connect_timeout": HANGS_S,
    }
    cluster = RedisCluster(
        startup_nodes=[ClusterNode(host, port) for host, port in where.hosts],
        require_full_coverage=False,  # one part of the sessions out of reach is no reason to lose the others
        max_connections=connections,
        ssl=where.tls is not None,
        **where.login,
        **(where.tls or {}),
        **common,
    )
    cluster.commands_parser = _KeyFirst()  # type: ignore[assignment]  # redis-py asks no more of it than this

    async def disconnect() -> None:
        # While it waits to read its map anew, aclose alone would leave connections open.
        await cluster.aclose()
        await cluster.nodes_manager.aclose()
        await cluster.nodes_manager.aclose("startup_nodes")

    return Client(cluster, disconnect)


class _KeyFirst:
    """Whenever it reads the cluster's map redis-py also has the server list all its commands, which takes it 70 ms of
    our event loop, to learn where each has its key. Ours have it first."""

    async def initialize(self, node: ClusterNode | None = None) -> None:
        pass

    async def get_keys(self, *args: Any) -> tuple[str, ...] | None:
        return args[1:2]


def _sentinel(where: Where, connections: int) -> Client:
    tls: dict[str, Any] = {} if where.tls is None else {"ssl": True, **where.tls}
    patience = {"socket_timeout": HANGS_S, "socket_connect_timeout": HANGS_S}
    sentinel = Sentinel(  # type: ignore[no-untyped-call]
        where.hosts,
        sentinel_kwargs={**_common(), **patience, **tls, **where.sentinel_login},
        **_common(),
        **tls,
    )
    master = sentinel.master_for(where.service, db=where.db, max_connections=connections, **where.login)

    async def disconnect() -> None:
        await master.aclose()
        await sentinel.aclose()

    return Client(master, disconnect)


def _options(query: str, *, tls: bool, sentinel: bool) -> dict[str, str]:
    allowed = ("db", *(_TLS if tls else ()), *(_SENTINELS if sentinel else ()))
    options = dict(parse_qsl(query, keep_blank_values=True))
    for name, value in options.items():
        if name not in allowed:
            raise _wrong(f"the option {name!r} is none of {', '.join(allowed)}")
        if name in _REQUIRED and value not in _REQUIRED[name]:
            raise _wrong(f"{name} must be one of {', '.join(_REQUIRED[name])}")
    return options


def _hosts(text: str, kind: str) -> tuple[tuple[str, int], ...]:
    usual = 26379 if kind == "sentinel" else 6379
    hosts = []
    for one in text.split(","):
        try:
            split = urlsplit(f"//{one}")
            host, port = split.hostname, split.port or usual
        except ValueError:
            host, port = None, 0
        if not host:
            raise _wrong("no host:port can be read (IPv6 goes in brackets, a password percent-encoded)")
        hosts.append((host, port))
    if kind == "server" and len(hosts) > 1:
        raise _wrong("several hosts are a cluster's or sentinels'")
    return tuple(hosts)


def _database(text: str, kind: str) -> int:
    if text and not (text.isascii() and text.isdecimal() and len(text) < 6):
        raise _wrong("the database is a number")
    if kind == "cluster" and int(text or 0):
        raise _wrong("a cluster has database 0 only")
    return int(text or 0)


def _wrong(what: str) -> ConfigError:
    return ConfigError(f"sessions.url: {what}; write {FORMS}")
