"""The fields of a multipart form around a file that is passed over, never copied."""

import re
from collections.abc import Mapping
from typing import NamedTuple

FIELDS = frozenset({"model", "prompt", "stream", "max_completion_tokens"})
MOST_MARKS = 64
"""Boundaries looked at, real ones or not; vLLM's own forms have about 25 fields."""
HEAD_BYTES = 4096
FIELD_BYTES = 65_536
_DISPOSITION = re.compile(rb"^content-disposition:[ \t]*+form-data([^\r]*)", re.IGNORECASE | re.MULTILINE)
# Not the standard library's email: its reader of parameters is quadratic, 64 heads of 2 KB cost it half a second.
_PARAMETER = re.compile(r';\s*+([a-z*]++)\s*+=\s*+(?:"((?:[^"\\]|\\.)*+)"|([^;"\s]*+))', re.IGNORECASE)


class Malformed(Exception):
    """Not a form, or one of too many or too large parts."""


class Field(NamedTuple):
    """A field's value and where it stands in the body."""

    value: bytes
    start: int
    end: int


def read(content_type: str, body: bytes) -> dict[str, Field]:
    """The fields of `FIELDS` that are there; of equal names the last counts, as in vLLM. Raises Malformed."""
    mark = b"\r\n--" + _boundary(content_type)
    fields: dict[str, Field] = {}
    at = _first(body, mark)
    for _ in range(MOST_MARKS):
        if body.startswith(b"--", at):
            return fields
        disposition, start = _head(body, at)
        end, at = _end(body, mark, start)
        name = disposition.get("name", "")
        if name in FIELDS and "filename" not in disposition:
            if end - start > FIELD_BYTES:
                raise Malformed
            fields[name] = Field(body[start:end], start, end)
    raise Malformed


def _boundary(content_type: str) -> bytes:
    kind, _, _ = content_type.partition(";")
    boundary = _parameters(content_type).get("boundary", "") if kind.strip().lower() == "multipart/form-data" else ""
    if not 0 < len(boundary) <= 256 or not boundary.isascii():
        raise Malformed
    return boundary.encode()


def _parameters(header: str) -> Mapping[str, str]:
    """`; name="model"; filename=a.wav`"""
    return {
        name.lower(): re.sub(r"\\(.)", r"\1", quoted) if quoted else plain
        for name, quoted, plain in _PARAMETER.findall(header)
    }


def _first(body: bytes, mark: bytes) -> int:
    """Behind the first boundary, which may have no line before it."""
    return len(mark) - 2 if body.startswith(mark[2:]) else _end(body, mark, 0)[1]


def _head(body: bytes, at: int) -> tuple[Mapping[str, str], int]:
    """How a part is disposed of, and where its data begin."""
    end = body.find(b"\r\n\r\n", at, at + HEAD_BYTES)
    if end < 0:
        raise Malformed
    found = _DISPOSITION.search(body, at, end)
    return _parameters(found[1].decode("latin-1")) if found else {}, end + 4


def _end(body: bytes, mark: bytes, start: int) -> tuple[int, int]:
    """Where data that begin at *start* end, and where the boundary behind them does.

    A mark is one only at the end of its line: a file may hold longer lines that begin with it.
    """
    for _ in range(MOST_MARKS):
        start = body.find(mark, start)
        if start < 0:
            break
        end = start + len(mark)
        if body.startswith(b"--", end) or body[end : end + 64].lstrip(b" \t").startswith(b"\r\n"):
            return start, end
        start = end
    raise Malformed
