"""The words of a user in undecoded JSON: of a conversation its last turns, of a long text head and tail, no base64."""

import re
from collections.abc import Callable, Iterator
from itertools import islice

from ext_proc import jsonbody
from ext_proc.jsonbody import Item

MAX_TURNS = 32
"""User turns looked at, from the last one back."""
EDGE_PARTS = 32
"""Parts of a turn read from its beginning, and as many from its end: a question may stand before or behind the rest."""
# Only from where a run of such letters begins: tried at every letter, runs of 255 would cost seconds.
_BASE64 = re.compile(r"(?:data:[\w/+.-]+;base64,|(?<![A-Za-z0-9+/=_-]))[A-Za-z0-9+/=_-]{256,}")

_STRINGS = re.compile(rb'\[\s*"')

Words = Iterator[tuple[str, bool]]
"""Texts, the newest turn first, each with whether it was cut."""
Reader = Callable[[memoryview, int], Words]
"""Words out of a member's value; the number is the encoder's window in characters."""


def turns(raw: memoryview, window: int) -> Words:
    """The user's turns in a list of messages."""
    spoken = (item for item in reversed(jsonbody.objects(raw)) if _by_user(item))
    for item in islice(spoken, MAX_TURNS):
        # A part of a Responses request may stand in the list by itself.
        text, cut = content(memoryview(item.content if item.content else item.text), window)
        if text:
            yield text, cut


def prompt(raw: memoryview, window: int) -> Words:
    """A string, or the first of a list of them; token ids have no text."""
    text, cut = clip(jsonbody.first(raw) if jsonbody.begins(raw, b"[") else raw, window)
    if text:
        yield text, cut


def query(raw: memoryview, window: int) -> Words:
    """The same, where instead of a string there may be an object with content parts."""
    raw = jsonbody.first(raw) if jsonbody.begins(raw, b"[") else raw
    text, cut = content(jsonbody.member(raw, "content") if jsonbody.begins(raw, b"{") else raw, window)
    if text:
        yield text, cut


def said(raw: memoryview, window: int) -> Words:
    """A string, a list of strings, or a conversation: whichever it is."""
    return turns(raw, window) if jsonbody.begins(raw, b"[") and not _STRINGS.match(raw) else query(raw, window)


def content(raw: memoryview, window: int) -> tuple[str, bool]:
    """A string, or the text parts of a content array."""
    if jsonbody.begins(raw, b"["):
        parts = jsonbody.objects(raw)
        parts = parts if len(parts) <= 2 * EDGE_PARTS else parts[:EDGE_PARTS] + parts[-EDGE_PARTS:]
        clipped = [clip(memoryview(part.text), window) for part in parts]
        text = " ".join(text for text, _ in clipped if text)
        return ends(text, window, cut=any(cut for _, cut in clipped))
    return clip(raw, window)


def clip(raw: memoryview, window: int) -> tuple[str, bool]:
    """A string's text."""
    text, cut = jsonbody.ends(raw, window)
    return ends(without_base64(text), window, cut=cut)


def ends(text: str, window: int, *, cut: bool) -> tuple[str, bool]:
    """Head and tail of a long text, *window* characters each: a question may stand at either end."""
    if len(text) <= 2 * window:
        return text, cut
    return f"{text[:window]} {text[-window:]}", True


def without_base64(text: str) -> str:
    """Words of 256 and more base64 letters left out. Splitting first keeps the pattern off ordinary words."""
    # A word of 256 letters covers one of these places, however it lies.
    if not any(_word(text, at) >= 256 for at in range(255, len(text), 256)):
        return text.strip()
    return " ".join(_BASE64.sub(" ", word) if len(word) >= 256 else word for word in text.split(" ")).strip()


def _by_user(item: Item) -> bool:
    role = bytes(item.role)
    return role == b'"user"' or (not role and bytes(item.type) == b'"input_text"')


def _word(text: str, at: int) -> int:
    """Letters of the word that the letter *at* is in, no more than 256 to either side."""
    start, end = max(0, at - 256), at + 256
    before, after = text.rfind(" ", start, at), text.find(" ", at, end)
    return (min(len(text), end) if after < 0 else after) - (start if before < 0 else before + 1)
