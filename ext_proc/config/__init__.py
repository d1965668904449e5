"""The configuration: read once, into types that cannot be wrong."""

from pathlib import Path

import msgspec
from msgspec import Struct, field

from ext_proc.config.encoder import Encoder
from ext_proc.config.fleet import FleetConfig
from ext_proc.config.places import EdgeHeader, Network, Places
from ext_proc.config.server import Envoy, EnvoyTls, Limits, Mode, Server, Tls
from ext_proc.config.sessions import Sessions
from ext_proc.config.units import MIB
from ext_proc.errors import ConfigError
from ext_proc.yamlfile import decode
from policy.rules import Rules

__all__ = [
    "MIB",
    "Config",
    "EdgeHeader",
    "Encoder",
    "Envoy",
    "EnvoyTls",
    "FleetConfig",
    "Limits",
    "Mode",
    "Network",
    "Places",
    "Server",
    "Sessions",
    "Tls",
    "load",
    "parse",
    "warnings",
]


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
        if self.envoy.port == self.envoy.admin_port:
            raise ValueError(f"envoy.port and envoy.admin_port are the same ({self.envoy.port})")
        if self.envoy.tls is not None and self.server.tls is None:
            raise ValueError("envoy.tls: the service itself has no TLS; give server.tls, too")
        if self.residency_header == "authorization":
            raise ValueError(
                "rules.residency names tenants: set sessions.tenant_header to the header in which your gateway, "
                "and nobody else, says whose request it is"
            )

    @property
    def residency_header(self) -> str | None:
        """Where a request says whose it is, if a residency rule asks."""
        return self.sessions.tenant_header if any(rule.tenants for rule in self.rules.residency) else None


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
        server=_resolved_server(base, config.server),
        bundle=_resolved(base, config.bundle),
        encoder=msgspec.structs.replace(
            config.encoder,
            path=_resolved(base, config.encoder.path),
            cache_dir=_resolved(base, config.encoder.cache_dir),
        ),
        places=msgspec.structs.replace(config.places, databases=tuple(base / path for path in config.places.databases)),
        fleet=msgspec.structs.replace(config.fleet, file=_resolved(base, config.fleet.file)),
    )


def _resolved_server(base: Path, server: Server) -> Server:
    tls = server.tls
    if tls is not None:
        paths = {name: _resolved(base, getattr(tls, name)) for name in tls.__struct_fields__}
        tls = Tls(**paths)  # type: ignore[arg-type]
    return msgspec.structs.replace(server, socket=server.socket and (base / server.socket).absolute(), tls=tls)


def _resolved(base: Path, path: Path | None) -> Path | None:
    return None if path is None else base / path


def warnings(config: Config) -> list[str]:
    """What is allowed but seldom meant."""
    out = []
    if config.server.workers > 1 and config.sessions.store == "memory":
        out.append(
            "sessions.store is memory and server.workers is above 1: each worker remembers its own sessions only"
        )
    if config.server.tls is not None and config.envoy.tls is None:
        out.append("server.tls without envoy.tls: `isogloss envoy bootstrap` cannot write an Envoy that speaks it")
    if config.rules.residency and (lost := [node.address for node in config.fleet.nodes if node.country is None]):
        out.append(f"fleet.nodes without a country meet no rule of rules.residency: {', '.join(lost)}")
    if any(rule.clients and rule.unknown for rule in config.rules.residency) and not config.places.asked:
        out.append("rules.residency asks where clients are, and places has nothing to tell: it concerns all requests")
    return out
