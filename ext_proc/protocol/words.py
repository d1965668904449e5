"""What happened to a request, and what to do about it: the words between Envoy and us."""

from collections.abc import Mapping
from enum import Enum, auto

from msgspec import Struct


class Mode(Enum):
    """How Envoy sends a body."""

    NONE = 0
    STREAMED = 1
    BUFFERED = 2
    BUFFERED_PARTIAL = 3
    FULL_DUPLEX = 4


class Phase(Enum):
    """Which message an answer belongs to."""

    REQUEST_HEADERS = auto()
    REQUEST_BODY = auto()
    REQUEST_TRAILERS = auto()
    RESPONSE_HEADERS = auto()
    RESPONSE_BODY = auto()
    RESPONSE_TRAILERS = auto()


# What happened.


class Headers(Struct, frozen=True):
    """Request headers. *modes* (request, response) stand in a stream's first message; None: not said."""

    headers: Mapping[str, str]
    ends: bool = False
    modes: tuple[Mode, Mode] | None = None
    attributes: Mapping[str, str] = {}
    subset: tuple[str, ...] | None = None
    lines: int = 0
    """Header lines as they came, before those of one name were joined; and what they weigh."""
    size: int = 0
    observing: bool = False
    """Envoy shows us the request and goes on without an answer."""


class Body(Struct, frozen=True):
    """Request body, whole or a piece."""

    data: bytes
    ends: bool = False
    subset: tuple[str, ...] | None = None
    """Some gateways hint at a subset here, and not with the headers."""


class Trailers(Struct, frozen=True):
    """Request trailers: the body before them is complete, though no piece said so."""


class ResponseHeaders(Struct, frozen=True):
    """The pod's, or a proxy's own, answer begins."""

    modes: tuple[Mode, Mode] | None = None
    headers: Mapping[str, str] = {}


class ResponseBody(Struct, frozen=True):
    """A piece of the answer."""

    data: bytes
    ends: bool = False


class ResponseTrailers(Struct, frozen=True):
    """The answer's trailers."""


Event = Headers | Body | Trailers | ResponseHeaders | ResponseBody | ResponseTrailers


# What to do.


class Decide(Struct, frozen=True):
    """Ask where this request goes, and bring the result to `Exchange.answer`."""

    headers: Mapping[str, str]
    attributes: Mapping[str, str]
    subset: tuple[str, ...] | None
    body: bytes | None
    """None: by the headers alone, the body is not ours to see."""
    rewritable: bool
    """The body can still be changed."""
    cut: bool = False
    """The body is only the beginning of what the client sends."""
    instead_of: str | None = None
    """The node of an earlier decision on this request that this one takes the place of."""
    observing: bool = False
    """Nobody follows the answer."""


class Pass(Struct, frozen=True):
    """Go on; nothing changes."""

    phase: Phase


class Route(Struct, frozen=True, kw_only=True):
    """Send the request to *node*: the decision's answer, and with a phase the command that says so to Envoy."""

    node: str
    headers: Mapping[str, str]
    remove: tuple[str, ...] = ()
    body: bytes | None = None
    """The body to send instead; None: the client's own bytes."""
    unread: bool = False
    """Ask Envoy to keep the body to itself."""
    phase: Phase = Phase.REQUEST_HEADERS


class Chunk(Struct, frozen=True):
    """A piece of body on its way, full duplex only."""

    phase: Phase
    data: bytes
    ends: bool


class Refuse(Struct, frozen=True, kw_only=True):
    """Answer the client ourselves, with an error in OpenAI's shape."""

    status: int
    message: str
    reason: str
    """One word for counters and Envoy's response code details."""
    param: str | None = None
    headers: Mapping[str, str] = {}


class Undecided(Struct, frozen=True):
    """The router has no answer: let Envoy's own load balancing take it, without a client's copy of our headers."""

    remove: tuple[str, ...] = ()
    phase: Phase = Phase.REQUEST_HEADERS


Command = Decide | Pass | Route | Chunk | Refuse | Undecided
Answer = Route | Refuse | Undecided
