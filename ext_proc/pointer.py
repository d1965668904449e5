"""JSON pointers (RFC 6901) into undecoded JSON: each step is one scan in C that decodes nothing else."""

import re
from typing import Any

import msgspec

MOST_STEPS = 16
MOST_INDEX = 99
"""An element further down a list is not reached: its decoder names every element before it."""
_NOTHING = memoryview(b"")
_UNREAD = re.compile(r'["\\\x00-\x1f]')  # msgspec knows no such names
_SPACE = re.compile(rb"[ \t\n\r]*")
_INDEX = re.compile(r"0|[1-9][0-9]*")


def keys(pointer: str) -> tuple[str, ...]:
    """The steps of *pointer*, unescaped. Raises ValueError saying what is wrong with it."""
    if not pointer.startswith("/"):
        raise ValueError(f"{pointer!r} is no JSON pointer: it begins with '/', as in /payload/question")
    if re.search(r"~(?![01])", pointer):
        raise ValueError(f"{pointer!r} is no JSON pointer: '~' in a key is written ~0, and '/' is written ~1")
    steps = tuple(step.replace("~1", "/").replace("~0", "~") for step in pointer[1:].split("/"))
    if len(steps) > MOST_STEPS:
        raise ValueError(f"{pointer!r} has {len(steps)} steps: at most {MOST_STEPS}")
    for step in steps:
        if _UNREAD.search(step):
            raise ValueError(f"{pointer!r}: a key with quotes, backslashes or control characters is not read")
        if step == "-" or (_INDEX.fullmatch(step) and int(step) > MOST_INDEX):
            raise ValueError(f"{pointer!r}: {step!r} is no element we read: a list is read up to {MOST_INDEX}")
    return steps


class Pointer:
    """A pointer, ready to be used."""

    def __init__(self, pointer: str) -> None:
        """Raises ValueError as `keys` does."""
        self.keys = keys(pointer)
        self._steps = [(_member(key), _element(key)) for key in self.keys]

    def of(self, raw: memoryview) -> memoryview:
        """The value it leads to, undecoded; empty where it leads nowhere."""
        space = _SPACE.match(raw)
        raw = raw[space.end() :] if space else raw
        for member, element in self._steps:
            decoder = {b"{": member, b"[": element}.get(bytes(raw[:1]))
            if decoder is None:
                return _NOTHING
            try:
                raw = memoryview(decoder.decode(raw).value)
            except (msgspec.DecodeError, RecursionError):
                return _NOTHING
        return raw


def _member(key: str) -> Any:
    """A decoder of objects that keeps the value of *key*."""
    field = [("value", msgspec.Raw, msgspec.Raw())]
    return msgspec.json.Decoder(msgspec.defstruct("Member", field, rename={"value": key}))


def _element(key: str) -> Any:
    """A decoder of lists that keeps one element; None when *key* is no number."""
    if not _INDEX.fullmatch(key):
        return None
    before = [(f"before_{i}", msgspec.Raw) for i in range(int(key))]
    return msgspec.json.Decoder(msgspec.defstruct("Element", [*before, ("value", msgspec.Raw)], array_like=True))
