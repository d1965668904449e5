"""Reading parts of a JSON body without decoding the rest.

msgspec scans the whole text in C and hands back raw views of the members asked for; a view's address says where
it stands in the body. Python's own json is the second opinion for what msgspec is too strict about and vLLM reads
(NaN, unpaired surrogates), up to a bounded size.
"""

import json
import re
from itertools import islice

import msgspec
import numpy as np
from pydantic_core import from_json

LENIENT_BYTES = 262_144
"""Above it a body only Python's json can read counts as malformed: its decoding would hold up everybody else."""
BEGINNING_BYTES = 262_144
"""Of a body that breaks off, so much is read."""
MANY = 10_000
"""A list of more objects is not read: a conversation has fewer, and 16 MiB of `{},` would hold up everybody else."""
SMALL_BYTES = 32_768
"""A shorter list may hold anything."""
_NEXT = re.compile(rb'\}\s*,\s*\{\s*["}]')  # between two objects; inside a string the quote would be escaped
_FIRST = re.compile(rb'\[\s*("(?:[^"\\]++|\\.)*+")', re.DOTALL)
_NOTHING = memoryview(b"")
_SLACK = 16  # bytes: an escape (surrogate pair) cut in two


class Malformed(Exception):
    """Not a JSON object."""


class _Body(msgspec.Struct):
    model: msgspec.Raw = msgspec.Raw()
    messages: msgspec.Raw = msgspec.Raw()
    prompt: msgspec.Raw = msgspec.Raw()
    input: msgspec.Raw = msgspec.Raw()
    stream: msgspec.Raw = msgspec.Raw()
    max_tokens: msgspec.Raw = msgspec.Raw()
    max_completion_tokens: msgspec.Raw = msgspec.Raw()
    max_output_tokens: msgspec.Raw = msgspec.Raw()
    user: msgspec.Raw = msgspec.Raw()
    metadata: msgspec.Raw = msgspec.Raw()


class Item(msgspec.Struct):
    """A message, a part of its content, or the metadata: whichever members it has."""

    role: msgspec.Raw = msgspec.Raw()
    content: msgspec.Raw = msgspec.Raw()
    text: msgspec.Raw = msgspec.Raw()
    user_id: msgspec.Raw = msgspec.Raw()


class Scanned:
    """The members a decision needs, undecoded; an absent one is empty. Of equal keys the last counts, as in vLLM."""

    __slots__ = ("_found", "_whole")

    def __init__(self, found: _Body, whole: bytes | None) -> None:
        """*whole*: the text *found* was read from; None when that was not the client's own."""
        self._found = found
        self._whole = whole

    def __getitem__(self, name: str) -> memoryview:
        """A member that `_Body` names."""
        return memoryview(getattr(self._found, name))

    def span(self, name: str) -> tuple[int, int] | None:
        """(start, end) of a member's value in the body; None when it is not there, or not to be found."""
        view = self[name]
        return None if self._whole is None or not view else _span(view, self._whole)


_body = msgspec.json.Decoder(_Body)
_item = msgspec.json.Decoder(Item)
_items = msgspec.json.Decoder(list[Item])
_mixed = msgspec.json.Decoder(list[Item | str | int | float | bool | None])
_string = msgspec.json.Decoder(str)


def scan(body: bytes) -> Scanned:
    """Raises Malformed when *body* is not a JSON object, or nested too deep."""
    try:
        return Scanned(_body.decode(body), body)
    except (msgspec.DecodeError, RecursionError):
        pass
    if not 0 < len(body) <= LENIENT_BYTES:
        raise Malformed
    try:
        value = json.loads(body, parse_float=_unread, parse_constant=_unread)
        plain = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
        return Scanned(_body.decode(plain), None)
    except (ValueError, RecursionError, msgspec.DecodeError):
        raise Malformed from None


def scan_beginning(body: bytes) -> Scanned:
    """The same of a body that breaks off: what stands there whole, and the beginning of a string that does not."""
    try:
        value = from_json(body[:BEGINNING_BYTES], allow_partial="trailing-strings")
        if isinstance(value, dict) and next(reversed(value), "") in ("model", "user"):
            value.popitem()  # half a name is somebody else's
        plain = json.dumps(value, ensure_ascii=False, default=_unread).encode("utf-8", "replace")
        return Scanned(_body.decode(plain), None)
    except (ValueError, RecursionError, msgspec.DecodeError):
        raise Malformed from None


def _unread(_: object) -> None:
    """NaN, Infinity and fractions: nothing a decision reads."""


def text(raw: memoryview, most: int) -> str | None:
    """A string member of at most *most* characters, else None."""
    if not raw or raw[0] != 0x22 or len(raw) > 6 * most + 2:
        return None
    try:
        value = _string.decode(raw)
    except msgspec.DecodeError:
        return None
    return value if len(value) <= most else None


def member(raw: memoryview, name: str) -> memoryview:
    """A member of an object that `Item` names; empty when *raw* is no object or has none."""
    if not raw or raw[0] != 0x7B:
        return _NOTHING
    try:
        return memoryview(getattr(_item.decode(raw), name))
    except (msgspec.DecodeError, RecursionError):
        return _NOTHING


def first(raw: memoryview) -> memoryview:
    """The string a list begins with; empty when it begins with something else."""
    found = _FIRST.match(raw)
    return raw[found.start(1) : found.end(1)] if found else _NOTHING


def objects(raw: memoryview) -> list[Item]:
    """The objects in a list, its other elements left out; none when it is not one, or a crowd."""
    if not raw or raw[0] != 0x5B or _crowded(raw):
        return []
    try:
        return _items.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        pass
    if len(raw) > SMALL_BYTES:
        return []
    try:
        return [item for item in _mixed.decode(raw) if isinstance(item, Item)]
    except (msgspec.DecodeError, RecursionError):
        return []


def _crowded(raw: memoryview) -> bool:
    """Counting separators first: it stops at the limit, decoding would go on to the end."""
    return len(raw) > SMALL_BYTES and next(islice(_NEXT.finditer(raw), MANY, None), None) is not None


def ends(raw: memoryview, window: int) -> tuple[str, bool]:
    """A string's text, or of a very long one about *window* characters of head and of tail, undecoded between."""
    if not raw or raw[0] != 0x22:
        return "", False
    inner = raw[1:-1]
    most = 12 * window  # bytes: a character takes up to 12 as an escaped pair
    if len(inner) <= 4 * most:
        return _unescape(bytes(inner)), False
    return f"{_unescape(bytes(inner[:most]))[:-_SLACK]} {_unescape(bytes(inner[-most:]))[_SLACK:]}", True


def is_tokens(raw: memoryview) -> bool:
    """A list of token ids, or of lists of them."""
    return bytes(raw[:16]).translate(None, b" \n\t\r[")[:1].isdigit() and bytes(raw[:1]) == b"["


def count(raw: memoryview) -> int:
    """How many token ids."""
    return bytes(raw).count(b",") + 1


def _unescape(inner: bytes) -> str:
    """The text between a string's quotes; what is cut or unpaired at its ends becomes a replacement character."""
    plain = inner.decode("utf-8", "ignore")
    try:
        return _string.decode(f'"{plain}"')
    except msgspec.DecodeError:
        pass
    try:
        value = json.loads(f'"{_whole_escapes(plain)}"', strict=False)
    except ValueError:
        return plain
    return str(value).encode("utf-8", "replace").decode("utf-8")


def _whole_escapes(plain: str) -> str:
    """Without an escape that was cut off at the end."""
    tail = plain.rfind("\\", max(0, len(plain) - 6))
    return plain if tail < 0 else plain[:tail].rstrip("\\")


def _span(view: memoryview, whole: bytes) -> tuple[int, int]:
    """Where *view*, a part of *whole*, begins and ends."""
    start = _address(view) - _address(memoryview(whole))
    assert whole[start : start + len(view)] == view, "msgspec handed out a copy"  # noqa: S101
    return start, start + len(view)


def _address(view: memoryview) -> int:
    return int(np.frombuffer(view, dtype=np.uint8).ctypes.data)
