"""What a request says: headers and JSON body into a policy Request and the text to embed.

The body is scanned once, in C; only the fields a decision needs are decoded, and of a long conversation only
its last turns. Its bytes are never rewritten here: where `model` must change, the span of that one value is kept.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import msgspec

from ext_proc import jsonbody, names, subset
from ext_proc.jsonbody import Malformed
from ext_proc.protocol import Decide
from policy.types import Hint, Modality, Request

APIS: Mapping[str, str] = {
    "/v1/chat/completions": "chat",
    "/v1/completions": "completions",
    "/v1/responses": "responses",
    "/v1/embeddings": "embeddings",
    "/v1/messages": "messages",
}
HINT_KEYS = frozenset({"zone", "region", "node", "pool", "tier", "avoid"})
MAX_HINTS = 16
MAX_TURNS = 32
"""User turns looked at, from the last one back."""
EDGE_PARTS = 32
"""Parts of a turn read from its beginning, and as many from its end: a question may stand before or behind the rest."""
TELLING = 40
"""A turn of so many characters stands for itself; under it the turn before it is read too ("and in Rust?")."""
_MODALITIES = re.compile(
    rb'"type"\s*:\s*"(?:(image|image_url|input_image|image_pil|image_embeds)|(input_audio|audio_url|audio))"'
)
# Only from where a run of such letters begins: tried at every letter, runs of 255 would cost seconds.
_BASE64 = re.compile(r"(?:data:[\w/+.-]+;base64,|(?<![A-Za-z0-9+/=_-]))[A-Za-z0-9+/=_-]{256,}")


class Parsed(msgspec.Struct, frozen=True, kw_only=True):
    """A request as read."""

    request: Request
    text: str = ""
    """What to embed, newest turn first; never logged."""
    user: str | None = None
    model_span: tuple[int, int] | None = None
    """Where the value of `model` stands in the body, quotes included."""
    malformed: bool = False
    cut: bool = False
    """Turns were longer than the encoder's window: head and tail were kept."""
    ignored_hints: int = 0


def reads(headers: Mapping[str, str]) -> bool:
    """Whether a request of these headers has a body that is read here."""
    path = headers.get(":path", "/").partition("?")[0]
    return headers.get(":method", "POST") == "POST" and _api(path) is not None and "upgrade" not in headers


def read(
    asked: Decide,
    *,
    turn: int,
    auto_model: str,
    window: int,
    tenant_header: str | None = None,
    subset_header: bool = False,
) -> Parsed:
    """*window*: characters of text the encoder can use. *tenant_header*: the one a rule asks for, None: no rule does.
    *subset_header*: the gateway may hint at a subset by header, where it gives no metadata.

    Never raises for anything a client sent.
    """
    headers = asked.headers
    path = headers.get(":path", "/").partition("?")[0]
    method = headers.get(":method", "POST")
    hints, ignored = _hints(headers.get(names.HINT, ""))
    api = _api(path) if method == "POST" else None
    told: dict[str, Any] = {
        "path": path,
        "method": method,
        "api": api,
        "hints": hints,
        "context_version": _whole(headers.get(names.CONTEXT, "")),
        "subset": _subset_by_header(headers) if subset_header and asked.subset is None else asked.subset,
        "turn": turn,
    }
    if tenant_header is not None:
        told["tenants"] = _tenants(headers.get(tenant_header, ""))
    if api is None or asked.body is None or "content-encoding" in headers:
        return Parsed(request=Request(**told), ignored_hints=ignored)
    try:
        body = jsonbody.scan_beginning(asked.body) if asked.cut else jsonbody.scan(asked.body)
    except Malformed:
        return Parsed(request=Request(**told), malformed=True, ignored_hints=ignored)
    said = _said(api, body, window)
    named = jsonbody.text(body["model"], 256)
    span = body.span("model") if named == auto_model and asked.rewritable else None
    return Parsed(
        request=Request(
            **told,
            model=named,
            auto=span is not None,
            stream=bytes(body["stream"]) == b"true",
            modality=said.modality,
            prompt_tokens=said.tokens,
            max_tokens=_most_tokens(body),
            asked=said.asked,
            follow_up=said.turns > 1,
        ),
        text=said.text,
        user=jsonbody.text(body["user"], 512) or jsonbody.text(jsonbody.member(body["metadata"], "user_id"), 512),
        model_span=span,
        cut=said.cut,
        ignored_hints=ignored,
    )


class _Said(msgspec.Struct):
    text: str = ""
    modality: Modality = "text"
    tokens: int = 0
    asked: int = 0
    turns: int = 0
    cut: bool = False


def _said(api: str, body: jsonbody.Scanned, window: int) -> _Said:
    match api:
        case "chat" | "messages":
            raw = body["messages"]
            turns = _user_turns(raw, window)
        case "responses":
            raw = body["input"]
            turns = _user_turns(raw, window) if bytes(raw[:1]) == b"[" else _whole_text(raw, window)
        case "embeddings":
            raw = body["input"]
            turns = _whole_text(raw, window)
        case _:
            raw = body["prompt"]
            turns = _whole_text(raw, window)
    out = _Said(modality=_modality(raw))
    for text, cut in turns:
        out.turns += 1
        if out.turns == 1:
            out.asked = len(text)
        if len(out.text) < TELLING:  # newest first: an older turn only helps one that says little by itself
            out.text = f"{out.text}\n{text}"[: 2 * window] if out.text else text
            out.cut |= cut
        elif out.turns > 1:
            break
    size = len(raw) if out.modality == "text" else len(out.text)  # pictures are not prompt text
    out.tokens = jsonbody.count(raw) if jsonbody.is_tokens(raw) else size // 4
    return out


def _user_turns(raw: memoryview, window: int) -> Iterator[tuple[str, bool]]:
    """Texts of the user's turns in a list of messages, newest first, each with whether it was cut."""
    said = (message for message in reversed(jsonbody.objects(raw)) if bytes(message.role) == b'"user"')
    for message in islice(said, MAX_TURNS):
        text, cut = _content(memoryview(message.content), window)
        if text:
            yield text, cut


def _content(raw: memoryview, window: int) -> tuple[str, bool]:
    """A string, or the text parts of a content array."""
    if bytes(raw[:1]) == b"[":
        parts = jsonbody.objects(raw)
        parts = parts if len(parts) <= 2 * EDGE_PARTS else parts[:EDGE_PARTS] + parts[-EDGE_PARTS:]
        clipped = [_clip(memoryview(part.text), window) for part in parts]
        text = " ".join(text for text, _ in clipped if text)
        return _ends(text, window, cut=any(cut for _, cut in clipped))
    return _clip(raw, window)


def _whole_text(raw: memoryview, window: int) -> Iterator[tuple[str, bool]]:
    """A prompt: a string, or the string a list begins with; token ids have no text."""
    if bytes(raw[:1]) == b"[":
        raw = jsonbody.first(raw)
    text, cut = _clip(raw, window)
    if text:
        yield text, cut


def _clip(raw: memoryview, window: int) -> tuple[str, bool]:
    text, cut = jsonbody.ends(raw, window)
    return _ends(_without_base64(text), window, cut=cut)


def _without_base64(text: str) -> str:
    """Words of 256 and more base64 letters left out. Splitting first keeps the pattern off ordinary words."""
    # A word of 256 letters covers one of these places, however it lies.
    if not any(_word(text, at) >= 256 for at in range(255, len(text), 256)):
        return text.strip()
    return " ".join(_BASE64.sub(" ", word) if len(word) >= 256 else word for word in text.split(" ")).strip()


def _word(text: str, at: int) -> int:
    """Letters of the word that the letter *at* is in, no more than 256 to either side."""
    start, end = max(0, at - 256), at + 256
    before, after = text.rfind(" ", start, at), text.find(" ", at, end)
    return (min(len(text), end) if after < 0 else after) - (start if before < 0 else before + 1)


def _ends(text: str, window: int, *, cut: bool) -> tuple[str, bool]:
    """Head and tail of a long text, *window* characters each: a question may stand at either end."""
    if len(text) <= 2 * window:
        return text, cut
    return f"{text[:window]} {text[-window:]}", True


def _modality(raw: memoryview) -> Modality:
    found = {match.lastindex for match in _MODALITIES.finditer(raw)}
    if 1 in found:
        return "image+text"
    return "audio+text" if 2 in found else "text"


def _api(path: str) -> str | None:
    path = path.rstrip("/")
    for suffix, api in APIS.items():
        if path.endswith(suffix):
            return api
    return None


def _hints(header: str) -> tuple[tuple[Hint, ...], int]:
    """`zone=us-east-1a, node=10.0.0.1:8000;require`; the second value counts what was not understood."""
    if not header:
        return (), 0
    entries = [entry.strip() for entry in header[:4096].split(",") if entry.strip()]
    out = []
    for entry in entries[:MAX_HINTS]:
        wish, *parameters = (part.strip() for part in entry.split(";"))
        key, equals, value = wish.partition("=")
        key, value = key.strip().lower(), value.strip()
        if key in HINT_KEYS and equals and 0 < len(value) <= 256:
            out.append(Hint(key, value, "require" in parameters))
    return tuple(out), len(entries) - len(out)


def _subset_by_header(headers: Mapping[str, str]) -> tuple[str, ...] | None:
    value = headers.get(names.SUBSET)
    return None if value is None else subset.listed((value,))


def _tenants(header: str) -> tuple[str, ...]:
    """All that are named: a client that adds a line of its own to the gateway's does not make that one unsaid."""
    return tuple(entry.strip() for entry in header.split(",") if entry.strip())


def _whole(text: str) -> int | None:
    """A number of at most 18 digits, else None."""
    return int(text) if 0 < len(text) <= 18 and text.isascii() and text.isdigit() else None


def _most_tokens(body: jsonbody.Scanned) -> int | None:
    """The most tokens the answer may have, by whichever name the API gives it."""
    for name in ("max_completion_tokens", "max_output_tokens", "max_tokens"):
        raw = body[name]
        if raw and (found := _whole(bytes(raw[:20]).decode("ascii", "replace"))) is not None:
            return found
    return None
