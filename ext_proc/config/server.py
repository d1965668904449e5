"""The ext_proc service, and the Envoy in front of it."""

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from ext_proc.config.units import MIB, Milliseconds, Port, Seconds

Mode = Literal["headers", "buffered", "duplex"]


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
    subset_header: bool = False
    """Believe the request header `x-gateway-destination-endpoint-subset`: only where the gateway sets it or takes a
    client's away. The metadata of that name is always believed, since no client can write it."""

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
