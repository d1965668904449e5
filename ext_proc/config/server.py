"""The ext_proc service, and the Envoy in front of it."""

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from ext_proc import pointer as pointers
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

    def __post_init__(self) -> None:
        for path in self.paths:
            if not path.startswith("/") or "?" in path or "#" in path:
                raise ValueError(f"server.paths: {path!r} is no path: as in /my/api, with no '?' or '#' in it")
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
