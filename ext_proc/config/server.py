"""The ext_proc service, and the Envoy in front of it."""

from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from ext_proc import pointer as pointers
from ext_proc.config.units import MIB, Milliseconds, Port, Seconds

Mode = Literal["headers", "buffered", "duplex"]
_LONGEST_SOCKET = 107
"""Linux; what the kernel would otherwise cut off or refuse."""


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

    @property
    def streams(self) -> int:
        """The most streams on one connection: 16 GiB of bodies. Beyond that Envoy opens another connection."""
        return max(16, min(10_000, 16 * 1024 * MIB // self.body_bytes))


class Tls(Struct, frozen=True, forbid_unknown_fields=True):
    """TLS on the ext_proc port; PEM files, read again when they change. Health and metrics stay plain."""

    certificate: Path
    """With whatever leads from it to the CA that Envoy knows."""
    key: Path
    client_ca: Path | None = None
    """Only clients with a certificate of this CA are served (mutual TLS)."""


class OwnApi(Struct, frozen=True, forbid_unknown_fields=True):
    """A JSON API that is none of ours, read by JSON pointers (RFC 6901) as `/payload/question`."""

    text: str
    """To the user's words: a string, a list of strings or a list of messages."""
    model: str | None = None
    """To the model's name; None: it names none."""

    def __post_init__(self) -> None:
        for pointer in (self.text, *(() if self.model is None else (self.model,))):
            pointers.keys(pointer)


class Server(Struct, frozen=True, forbid_unknown_fields=True):
    """The ext_proc service. Worker *i* listens on `port + i`; Envoy lists them all."""

    host: str = "127.0.0.1"
    port: Port = 9002
    socket: Path | None = None
    """A Unix socket instead of the ext_proc port; worker 1 listens on `<socket>.1`, and so on."""
    socket_mode: Annotated[str, Meta(pattern=r"^0?[0-7]{3}$")] = "660"
    """Who may connect, in octal and in quotes: Envoy's user needs to write."""
    tls: Tls | None = None
    health_port: Port = 9003
    metrics_port: Port = 9090
    workers: Annotated[int, Meta(ge=1, le=64)] = 1
    deadline_ms: Milliseconds = 50.0
    """Our own deadline, from the message that completes the input: by then we answer with what is known."""
    drain_s: Annotated[float, Meta(ge=0.0, le=600.0)] = 5.0
    limits: Limits = field(default_factory=Limits)
    reject_malformed: bool = False
    """Answer 400 to a body that is not what its path asks for instead of passing it to a pod untouched."""
    paths: dict[str, OwnApi] = field(default_factory=dict)
    """APIs of your own, by their exact path."""
    subset_header: bool = False
    """Believe the request header `x-gateway-destination-endpoint-subset`: only where the gateway sets it or takes a
    client's away. The metadata of that name is always believed, since no client can write it."""

    def __post_init__(self) -> None:
        for path in self.paths:
            if not path.startswith("/") or "?" in path or "#" in path:
                raise ValueError(f"server.paths: {path!r} is no path: as in /my/api, with no '?' or '#' in it")
        taken: dict[int, str] = {}
        for name, ports in self.ports().items():
            for port in ports:
                if port > 65535:
                    raise ValueError(f"server.{name} ({ports.start}): there is no port {port} for the last worker")
                if port in taken:
                    raise ValueError(
                        f"server.{name} ({ports.start}) and server.{taken[port]} meet at {port}: "
                        f"each needs {self.workers} ports side by side, one a worker"
                    )
                taken[port] = name
        if self.socket is not None and len(bytes(self.socket_of(self.workers - 1))) > _LONGEST_SOCKET:
            raise ValueError(f"server.socket: a socket's path has at most {_LONGEST_SOCKET} bytes ({self.socket})")

    def ports(self) -> dict[str, range]:
        """The TCP ports of all workers, by the setting that gives the first."""
        names = ("health_port", "metrics_port") if self.socket is not None else ("port", "health_port", "metrics_port")
        return {name: range(first := getattr(self, name), first + self.workers) for name in names}

    def socket_of(self, worker: int) -> Path:
        """Where that worker listens."""
        return Path(f"{self.socket}.{worker}" if worker else f"{self.socket}")


class EnvoyTls(Struct, frozen=True, forbid_unknown_fields=True):
    """How Envoy reaches a service with `server.tls`; paths are Envoy's, as it reads them at its start."""

    ca: Path
    """Of whom our certificate must be."""
    name: str | None = None
    """The name or address that must stand in our certificate; None: `server.host`."""
    certificate: Path | None = None
    key: Path | None = None
    """Envoy's own, for mutual TLS."""

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("envoy.tls: certificate and key go together")


class Envoy(Struct, frozen=True, forbid_unknown_fields=True):
    """What `isogloss envoy bootstrap` writes."""

    host: str = "0.0.0.0"  # noqa: S104 - the listener is Envoy's, for clients of the mesh
    port: Port = 10000
    admin_port: Port = 9901
    mode: Mode = "buffered"
    message_timeout_ms: Milliseconds = 200.0
    """Envoy's own patience; must be above `server.deadline_ms`, so that we answer first."""
    tls: EnvoyTls | None = None
