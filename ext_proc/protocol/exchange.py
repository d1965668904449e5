"""One HTTP request's conversation with Envoy, told as events and answered as commands. No I/O, no protobuf.

The server feeds what happened and carries out what comes back; only a `Decide` needs the outside world, and its
answer goes back in through `answer`. Envoy's rules this rests on: outside full duplex every message gets exactly one
answer of its kind; in full duplex the order is headers, body chunks, trailers, an answer may be held back as long as
it likes, and a body is only ever answered with chunks. After one end of stream another is ignored (Envoy 1.35 and
later send a second one behind large bodies). Where Envoy only shows us what goes by (observability mode), it wants no
answer at all. A body nobody here reads is not asked for, and let through where it is sent all the same.
"""

from collections.abc import Callable, Iterator, Mapping
from enum import Enum, auto
from typing import assert_never

from msgspec import structs

from ext_proc import names
from ext_proc.protocol.words import (
    Answer,
    Body,
    Chunk,
    Command,
    Decide,
    Event,
    Headers,
    Mode,
    Pass,
    Phase,
    Refuse,
    ResponseBody,
    ResponseHeaders,
    ResponseTrailers,
    Route,
    Trailers,
)

CHUNK_BYTES = 62_000
"""Largest body piece in one answer: Envoy refuses answers above 64 KiB in full duplex."""


MAX_HEADERS = 100
"""Lines of request headers, as Envoy's own default; the generated Envoy takes more, so that there is room for ours."""
MAX_HEADER_BYTES = 60 * 1024


_LETS_LARGE_PASS = (Mode.BUFFERED_PARTIAL, Mode.STREAMED)
"""Modes in which nobody holds a whole body, so none is too large; of a first piece little is read."""


class _At(Enum):
    START = auto()
    UPLOAD = auto()
    DECIDING = auto()
    FIRST = auto()
    """Decided by the headers; a first piece that is the whole body may still better that."""
    ECHO = auto()
    """Decided; a body comes that nobody reads and that full duplex wants back."""
    CLOSED = auto()


class Exchange:
    """The state of one ext_proc stream."""

    def __init__(self, body_bytes: int, reads: Callable[[Mapping[str, str]], bool]) -> None:
        """*body_bytes*: the largest body read; a larger one is refused with 413. *reads*: whether a request of such
        headers has a body that is worth waiting for."""
        self._limit = body_bytes
        self._reads = reads
        self._at = self._then = _At.START
        self._node: str | None = None
        self._observing = False
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
        return self._at is _At.UPLOAD and self._request_mode is Mode.FULL_DUPLEX and not self._observing

    def feed(self, event: Event) -> Iterator[Command]:
        """What to do about *event*: nothing, one thing, or several, in order."""
        commands = self._feed(event)
        if self._observing or (isinstance(event, Headers) and event.observing):
            return (command for command in commands if isinstance(command, Decide))
        return commands

    def _feed(self, event: Event) -> Iterator[Command]:
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
        self._at = _At.CLOSED if isinstance(answer, Refuse) else self._then
        pieces, self._pieces = self._pieces, []
        if self._observing:
            return
        if isinstance(answer, Refuse):
            yield answer
            return
        if isinstance(answer, Route):
            self._node = answer.node
        if self._request_mode is not Mode.FULL_DUPLEX or self._asked is Phase.REQUEST_HEADERS:
            if isinstance(answer, Route) and self._then is _At.ECHO:
                answer = self._without_body(answer)
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
        self._observing = event.observing
        if event.lines > MAX_HEADERS or event.size > MAX_HEADER_BYTES:
            self._at = _At.CLOSED  # Envoy would refuse our answer for being more than it takes, with a 500 or 503
            message = f"The request has more than {MAX_HEADERS} header lines, or than {MAX_HEADER_BYTES} bytes of them."
            yield Refuse(status=431, message=message, reason="headers-too-large")
            return
        if event.ends:
            yield self._decide(Phase.REQUEST_HEADERS, b"")
            return
        read = self._reads(event.headers)
        if read and self._request_mode not in _LETS_LARGE_PASS and _declared(event.headers) > self._limit:
            yield self._too_large()
            return
        if not read or self._request_mode is Mode.NONE:
            yield self._decide(Phase.REQUEST_HEADERS, None, then=_At.CLOSED if read else _At.ECHO)
            return
        if self._request_mode is Mode.STREAMED and not self._observing:
            # Once Envoy has our answer it goes on, and no later one can change where; unless the whole body is there
            # by then, which of a small request it nearly always is.
            yield self._decide(Phase.REQUEST_HEADERS, None, then=_At.FIRST)
            return
        self._at = _At.UPLOAD
        if self._request_mode is not Mode.FULL_DUPLEX:
            yield Pass(Phase.REQUEST_HEADERS)

    def _body(self, event: Body) -> Iterator[Command]:
        duplex = self._request_mode is Mode.FULL_DUPLEX
        if event.subset is not None:
            self._subset = event.subset
        if self._at is _At.FIRST and event.ends and event.data:
            yield self._decide(Phase.REQUEST_BODY, event.data)
            return
        if self._at is not _At.UPLOAD:
            yield from self._let_through(event)
            return
        self._size += len(event.data)
        over = self._size > self._limit
        if over and not self._observing and self._request_mode not in _LETS_LARGE_PASS:
            yield self._too_large()
            return
        if event.data:
            self._pieces.append(event.data)
        if over and self._observing:
            yield self._decide(Phase.REQUEST_BODY, self._whole(), cut=True)
            return
        # Buffered, the one message is the whole body, trailers or not; partially buffered, unless something follows.
        if event.ends or not (duplex or self._observing):
            cut = self._request_mode is Mode.BUFFERED_PARTIAL and not event.ends
            yield self._decide(Phase.REQUEST_BODY, self._whole(), cut=cut)

    def _let_through(self, event: Body) -> Iterator[Command]:
        if self._request_mode is not Mode.FULL_DUPLEX:
            self._at = _At.CLOSED
            yield Pass(Phase.REQUEST_BODY)
        elif self._at is _At.START:  # a gateway that skips headers: nothing to decide on
            yield Chunk(Phase.REQUEST_BODY, event.data, event.ends)
        elif self._at is _At.ECHO:
            self._at = _At.CLOSED if event.ends else _At.ECHO
            yield from _chunks(event.data, ends=event.ends)

    def _request_trailers(self) -> Iterator[Command]:
        if self._at is _At.UPLOAD and (self._request_mode is Mode.FULL_DUPLEX or self._observing):
            self._trailers = True
            yield self._decide(Phase.REQUEST_TRAILERS, self._whole())
        else:
            yield Pass(Phase.REQUEST_TRAILERS)

    def _response_body(self, event: ResponseBody) -> Iterator[Command]:
        if self._response_mode is not Mode.FULL_DUPLEX:
            yield Pass(Phase.RESPONSE_BODY)
        elif not self._response_over:
            self._response_over = event.ends
            yield from _chunks(event.data, ends=event.ends, phase=Phase.RESPONSE_BODY)

    def _decide(self, phase: Phase, body: bytes | None, *, cut: bool = False, then: _At = _At.CLOSED) -> Decide:
        head = self._head
        assert head is not None  # noqa: S101 - every way here leads through _headers
        self._at, self._then, self._asked = _At.DECIDING, then, phase
        whole = phase is not Phase.REQUEST_HEADERS and self._request_mode is not Mode.STREAMED and not cut
        return Decide(head.headers, head.attributes, self._subset, body, whole, cut, self._node, self._observing)

    def _whole(self) -> bytes:
        self._pieces = [b"".join(self._pieces)]  # joined once: of one piece, join() gives that very object
        return self._pieces[0]

    def _without_body(self, route: Route) -> Route:
        """Full duplex takes no notice of `unread` and sends the body, behind which trailers may come."""
        assert self._head is not None  # noqa: S101 - as above
        if self._request_mode is Mode.FULL_DUPLEX and "content-length" not in self._head.headers:
            route = _with_trailers(route)
        return structs.replace(route, unread=True)

    def _too_large(self) -> Refuse:
        self._at = _At.CLOSED
        self._pieces.clear()
        message = f"The request body is over the limit of {self._limit} bytes."
        return Refuse(status=413, message=message, reason="body-too-large")


def _declared(headers: Mapping[str, str]) -> int:
    """The body's length as announced; 0 when it is not, or not as a number."""
    length = headers.get("content-length", "")
    return int(length[:20]) if length.isascii() and length.isdigit() else 0


def _with_trailers(route: Route) -> Route:
    """Marked for the route without retries: with them, Envoy keeps the body it was given and gives it to the pod twice
    when the trailers let it go on (seen in 1.40; envoy#36119 is the same of retries themselves)."""
    headers = {**route.headers, names.TRAILERS: "true"}
    return structs.replace(route, headers=headers, remove=tuple(n for n in route.remove if n != names.TRAILERS))


def _chunks(body: bytes, *, ends: bool, phase: Phase = Phase.REQUEST_BODY) -> Iterator[Chunk]:
    if not body and not ends:
        return
    last = max(0, (len(body) - 1) // CHUNK_BYTES)
    for i in range(last + 1):
        piece = body[i * CHUNK_BYTES : (i + 1) * CHUNK_BYTES]
        yield Chunk(phase, piece, ends and i == last)
