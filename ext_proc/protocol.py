"""One HTTP request's conversation with Envoy, told as events and answered as commands. No I/O, no protobuf.

The server feeds what happened and carries out what comes back; only a `Decide` needs the outside world, and its
answer goes back in through `answer`. Envoy's rules this rests on: outside full duplex every message gets exactly one
answer of its kind; in full duplex the order is headers, body chunks, trailers, an answer may be held back as long as
it likes, and a body is only ever answered with chunks. After one end of stream another is ignored (Envoy 1.35 and
later send a second one behind large bodies).
"""

from collections.abc import Iterator, Mapping
from enum import Enum, auto
from typing import assert_never

from msgspec import Struct, structs

from ext_proc import names

CHUNK_BYTES = 62_000
"""Largest body piece in one answer: Envoy refuses answers above 64 KiB in full duplex."""


MAX_HEADERS = 100
"""Lines of request headers, as Envoy's own default; the generated Envoy takes more, so that there is room for ours."""
MAX_HEADER_BYTES = 60 * 1024


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


class _At(Enum):
    START = auto()
    UPLOAD = auto()
    DECIDING = auto()
    CLOSED = auto()


class Exchange:
    """The state of one ext_proc stream."""

    def __init__(self, body_bytes: int) -> None:
        """*body_bytes*: the largest body read; a larger one is refused with 413."""
        self._limit = body_bytes
        self._at = _At.START
        self._request_mode = self._response_mode = Mode.FULL_DUPLEX
        self._head: Headers | None = None
        self._subset: tuple[str, ...] | None = None
        self._pieces: list[bytes] = []
        self._size = 0
        self._trailers = False
        self._asked = Phase.REQUEST_HEADERS
        self._response_over = False
        self.started: float | None = None
        """When the upload began, on the caller's clock; ours to keep, the caller's to set."""

    @property
    def uploading(self) -> bool:
        """Envoy waits for us while the client still sends: the caller's upload limits apply."""
        return self._at is _At.UPLOAD and self._request_mode is Mode.FULL_DUPLEX

    def feed(self, event: Event) -> Iterator[Command]:
        """What to do about *event*: nothing, one thing, or several, in order."""
        match event:
            case Headers():
                yield from self._headers(event)
            case Body():
                yield from self._body(event)
            case Trailers():
                yield from self._request_trailers()
            case ResponseHeaders():
                if event.modes is not None:
                    self._response_mode = event.modes[1]
                yield Pass(Phase.RESPONSE_HEADERS)
            case ResponseBody():
                yield from self._response_body(event)
            case ResponseTrailers():
                yield Pass(Phase.RESPONSE_TRAILERS)
            case _:
                assert_never(event)

    def answer(self, answer: Answer) -> Iterator[Command]:
        """Carry out the answer to the last `Decide`."""
        assert self._at is _At.DECIDING, "answer() without a Decide"  # noqa: S101 - a bug of ours, not an input
        self._at = _At.CLOSED
        pieces, self._pieces = self._pieces, []
        if isinstance(answer, Refuse):
            yield answer
            return
        if self._request_mode is not Mode.FULL_DUPLEX or self._asked is Phase.REQUEST_HEADERS:
            yield structs.replace(answer, phase=self._asked)
            return
        changed = answer.body if isinstance(answer, Route) else None
        if self._trailers and isinstance(answer, Route):
            answer = _with_trailers(answer)
        yield structs.replace(answer, phase=Phase.REQUEST_HEADERS)
        yield from _chunks(b"".join(pieces) if changed is None else changed, ends=not self._trailers)
        if self._trailers:
            yield Pass(Phase.REQUEST_TRAILERS)

    def stalled(self) -> Refuse:
        """The upload took too long."""
        self._at = _At.CLOSED
        self._pieces.clear()
        return Refuse(status=408, message="The request body did not arrive in time.", reason="upload-timeout")

    def _headers(self, event: Headers) -> Iterator[Command]:
        if self._at is not _At.START:
            return  # headers come once; anything else is not Envoy's
        if event.modes is not None:
            self._request_mode, self._response_mode = event.modes
        self._head, self._subset = event, event.subset
        if event.lines > MAX_HEADERS or event.size > MAX_HEADER_BYTES:
            self._at = _At.CLOSED  # Envoy would refuse our answer for being more than it takes, with a 500 or 503
            message = f"The request has more than {MAX_HEADERS} header lines, or than {MAX_HEADER_BYTES} bytes of them."
            yield Refuse(status=431, message=message, reason="headers-too-large")
            return
        declared = event.headers.get("content-length", "")
        if not event.ends and declared.isascii() and declared.isdigit() and int(declared[:20]) > self._limit:
            yield self._too_large()
            return
        if event.ends or self._request_mode in (Mode.NONE, Mode.STREAMED):
            yield self._decide(Phase.REQUEST_HEADERS, b"" if event.ends else None)
            return
        self._at = _At.UPLOAD
        if self._request_mode is not Mode.FULL_DUPLEX:
            yield Pass(Phase.REQUEST_HEADERS)

    def _body(self, event: Body) -> Iterator[Command]:
        duplex = self._request_mode is Mode.FULL_DUPLEX
        if self._at is not _At.UPLOAD:
            if not duplex:
                yield Pass(Phase.REQUEST_BODY)
            elif self._at is _At.START:  # a gateway that skips headers: nothing to decide on
                yield Chunk(Phase.REQUEST_BODY, event.data, event.ends)
            return
        if event.subset is not None:
            self._subset = event.subset
        self._size += len(event.data)
        if self._size > self._limit:
            yield self._too_large()
            return
        if event.data:
            self._pieces.append(event.data)
        if event.ends or not duplex:  # outside duplex the one body message is the whole body, trailers or not
            yield self._decide(Phase.REQUEST_BODY, self._whole())

    def _request_trailers(self) -> Iterator[Command]:
        if self._at is _At.UPLOAD and self._request_mode is Mode.FULL_DUPLEX:
            self._trailers = True
            yield self._decide(Phase.REQUEST_TRAILERS, self._whole())
        else:
            yield Pass(Phase.REQUEST_TRAILERS)

    def _response_body(self, event: ResponseBody) -> Iterator[Command]:
        if self._response_mode is not Mode.FULL_DUPLEX:
            yield Pass(Phase.RESPONSE_BODY)
        elif not self._response_over:
            self._response_over = event.ends
            yield Chunk(Phase.RESPONSE_BODY, event.data, event.ends)

    def _decide(self, phase: Phase, body: bytes | None) -> Decide:
        assert self._head is not None  # noqa: S101 - UPLOAD and DECIDING are only reached through _headers
        self._at, self._asked = _At.DECIDING, phase
        rewritable = phase is not Phase.REQUEST_HEADERS and self._request_mode is not Mode.BUFFERED_PARTIAL
        return Decide(self._head.headers, self._head.attributes, self._subset, body, rewritable)

    def _whole(self) -> bytes:
        self._pieces = [b"".join(self._pieces)]  # joined once: of one piece, join() gives that very object
        return self._pieces[0]

    def _too_large(self) -> Refuse:
        self._at = _At.CLOSED
        self._pieces.clear()
        message = f"The request body is over the limit of {self._limit} bytes."
        return Refuse(status=413, message=message, reason="body-too-large")


def _with_trailers(route: Route) -> Route:
    """Marked for the route without retries: with them, Envoy keeps the body it was given and gives it to the pod twice
    when the trailers let it go on (seen in 1.40; envoy#36119 is the same of retries themselves)."""
    headers = {**route.headers, names.TRAILERS: "true"}
    return structs.replace(route, headers=headers, remove=tuple(n for n in route.remove if n != names.TRAILERS))


def _chunks(body: bytes, *, ends: bool) -> Iterator[Chunk]:
    if not body and not ends:
        return
    last = max(0, (len(body) - 1) // CHUNK_BYTES)
    for i in range(last + 1):
        piece = body[i * CHUNK_BYTES : (i + 1) * CHUNK_BYTES]
        yield Chunk(Phase.REQUEST_BODY, piece, ends and i == last)
