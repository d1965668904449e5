"""What an answer says it cost: tokens of prompt and answer, read as the answer passes by, wherever its pieces break.

Nothing is held back and nothing is changed; what cannot be read is not counted.
"""

from collections.abc import Mapping

import msgspec
from msgspec import Struct

MAX_EVENT = 256 * 1024
"""Bytes of one server-sent event that are looked at; a longer one carries no usage."""
MAX_JSON = 1024 * 1024
"""Bytes of an answer in one piece that are kept for reading."""
_FIELD = b"data:"
_MARK = b'"usage"'


class Usage(Struct, frozen=True):
    """Tokens as the pod counted them; None: it did not say."""

    prompt: int | None = None
    completion: int | None = None
    cached: int | None = None
    """Prompt tokens that were found in the prefix cache."""


class _Details(Struct):
    cached_tokens: int | None = None


class _Counts(Struct):
    """OpenAI's names and, after them, those of the Responses and Messages APIs."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: _Details | None = None
    cache_read_input_tokens: int | None = None


class _Inner(Struct):
    usage: _Counts | None = None


class _Answer(Struct):
    """Where each API puts it: at the top, in `response` (Responses), in `message` (the first event of Messages)."""

    usage: _Counts | None = None
    response: _Inner | None = None
    message: _Inner | None = None


_decoder = msgspec.json.Decoder(_Answer)


class UsageReader:
    """Feed it an answer; `usage` is what was found so far: a later figure replaces an earlier one, no figure none."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        """*headers*: of the answer. One that is compressed is not read."""
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        plain = headers.get("content-encoding", "identity") == "identity"
        self._events = plain and kind == "text/event-stream"
        self._whole = plain and kind == "application/json"
        self._tail = bytearray()
        self._skipping = False
        self.usage = Usage()

    def feed(self, data: bytes, *, ends: bool) -> None:
        """The next piece."""
        if self._events:
            self._lines(data)
            if ends:
                self._line(bytes(self._tail))
                self._tail.clear()
        elif self._whole:
            self._tail += data
            if len(self._tail) > MAX_JSON:
                self._whole = False
                self._tail.clear()
            elif ends:
                self._read(bytes(self._tail))
                self._tail.clear()

    def _lines(self, data: bytes) -> None:
        """Lines end with LF, CRLF or CR; a CR is white space to the JSON before it."""
        first, *others = data.replace(b"\r", b"\n").split(b"\n")
        self._keep(first)
        for line in others:
            if not self._skipping:
                self._line(bytes(self._tail))
            self._tail.clear()
            self._skipping = False
            self._keep(line)

    def _keep(self, piece: bytes) -> None:
        if len(self._tail) + len(piece) > MAX_EVENT:
            self._skipping = True
            self._tail.clear()
        elif not self._skipping:
            self._tail += piece

    def _line(self, line: bytes) -> None:
        if line.startswith(_FIELD) and _MARK in line:
            self._read(line[len(_FIELD) :])

    def _read(self, text: bytes) -> None:
        try:
            answer = _decoder.decode(text)
        except (msgspec.DecodeError, RecursionError):
            return
        for holder in (answer, answer.response, answer.message):
            if holder is not None and holder.usage is not None:
                self._take(holder.usage)

    def _take(self, counts: _Counts) -> None:
        details = counts.prompt_tokens_details or counts.input_tokens_details
        found = (
            _first(counts.prompt_tokens, counts.input_tokens, self.usage.prompt),
            _first(counts.completion_tokens, counts.output_tokens, self.usage.completion),
            _first(details.cached_tokens if details else None, counts.cache_read_input_tokens, self.usage.cached),
        )
        self.usage = Usage(*found)


def _first(*numbers: int | None) -> int | None:
    return next((n for n in numbers if n is not None and n >= 0), None)
