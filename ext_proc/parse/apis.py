"""The APIs whose bodies are read: which path belongs to which, and where each keeps the words of its user."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from ext_proc import jsonbody
from ext_proc.parse import form
from ext_proc.parse.said import Said, whole
from ext_proc.parse.words import Reader, ends, prompt, query, said, turns, without_base64

_NULL = ord("n")
_NOTHING = memoryview(b"")
Members = tuple[tuple[str, Reader], ...]


class Api(Protocol):
    """One API."""

    @property
    def name(self) -> str: ...

    def read(self, headers: Mapping[str, str], body: bytes, window: int, auto: str | None) -> Said:
        """What *body* says; where the model stands only if its name is *auto*.

        Raises jsonbody.Malformed or form.Malformed.
        """
        ...


class Json(NamedTuple):
    """A JSON body with `model` on top. Of *words* the first member that is there is read."""

    name: str
    words: Members = ()
    beside: tuple[str, ...] = ()
    """Members the model reads with them: they may hold pictures, and count as prompt."""
    around: tuple[str, ...] = ()
    """Members that are text around the words: they count as prompt and are never embedded."""
    writes: bool = False
    """The model writes an answer, and keeps the prompt's beginning in its cache for the next."""

    def read(self, headers: Mapping[str, str], body: bytes, window: int, auto: str | None) -> Said:
        """As in `Api`."""
        found = jsonbody.scan(body)
        model = found["model"]
        out = Said(
            model=jsonbody.text(model, 256),
            stream=bytes(found["stream"]) == b"true",
            user=jsonbody.text(found["user"], 512) or jsonbody.text(jsonbody.member(found["metadata"], "user_id"), 512),
            max_tokens=_most_tokens(found),
        )
        if auto is not None and out.model == auto:
            out.span = found.span(model, ("model",))
        raw = _NOTHING
        for name, reader in self.words:
            raw = found[name]
            if raw and raw[0] != _NULL:
                out.hear(reader(raw, window), window)
                break
        if jsonbody.is_tokens(raw):
            out.tokens = jsonbody.count(raw)
        else:
            out.weigh(raw, *[found[name] for name in self.beside])
        for name in self.around:
            out.tokens += len(found[name]) // 4
        if self.writes:
            out.prompt = (*[found[name] for name in self.around], raw)
        return out


class Form(NamedTuple):
    """A multipart form with a sound file."""

    name: str

    def read(self, headers: Mapping[str, str], body: bytes, window: int, auto: str | None) -> Said:
        """As in `Api`."""
        fields = form.read(headers.get("content-type", ""), body)
        out = Said(modality="audio+text", quoted=False)
        if (model := fields.get("model")) is not None and len(model.value) <= 1024:
            out.model = model.value.decode("utf-8", "replace")[:256] or None
            if auto is not None and out.model == auto:
                out.span = model.start, model.end
        if (words := fields.get("prompt")) is not None:
            text, cut = ends(without_base64(words.value.decode("utf-8", "replace")), window, cut=False)
            out.hear(iter([(text, cut)] if text else []), window)
            out.tokens = len(words.value) // 4
        out.stream = "stream" in fields and fields["stream"].value.lower() in (b"true", b"1")
        if "max_completion_tokens" in fields:
            out.max_tokens = whole(fields["max_completion_tokens"].value[:20].decode("ascii", "replace"))
        return out


_POOLED: Members = (("input", prompt), ("messages", turns))
_MESSAGES = Json("messages", (("messages", turns),), around=("system", "tools"), writes=True)
_RERANK = Json("rerank", (("query", query),), beside=("documents",))
_SCORE = Json(
    "score",
    (("queries", query), ("text_1", query), ("data_1", query)),
    beside=("documents", "items", "text_2", "data_2"),
)

APIS: Mapping[str, Api] = {
    "/v1/chat/completions": Json("chat", (("messages", turns),), around=("tools",), writes=True),
    "/v1/completions": Json("completions", (("prompt", prompt),), writes=True),
    "/v1/responses": Json("responses", (("input", said),), around=("instructions", "tools"), writes=True),
    "/v1/messages": _MESSAGES,
    "/v1/messages/count_tokens": _MESSAGES,
    "/v1/embeddings": Json("embeddings", _POOLED),
    "/v1/audio/transcriptions": Form("transcriptions"),
    "/v1/audio/translations": Form("translations"),
    "/v1/rerank": _RERANK,
    "/v2/rerank": _RERANK,
    "/rerank": _RERANK,
    "/v1/score": _SCORE,
    "/score": _SCORE,
    "/pooling": Json("pooling", _POOLED),
    "/classify": Json("classify", _POOLED),
    "/tokenize": Json("tokenize", (("prompt", prompt), ("messages", turns)), around=("tools",)),
    "/detokenize": Json("detokenize", (("tokens", prompt),)),
}
_VERSIONS = "/v1/", "/v2/"


def of(path: str, own: Mapping[str, Api]) -> Api | None:
    """The API of a path: the operator's *own*, or one of the table behind any prefix (`/openai/v1/completions`)."""
    path = path.rstrip("/")
    found = own.get(path) or APIS.get(path)
    if found is not None:
        return found
    at = max(path.rfind(version) for version in _VERSIONS)
    return APIS.get(path[at:]) if at > 0 else None


def _most_tokens(body: jsonbody.Scanned) -> int | None:
    """The most tokens the answer may have, by whichever name the API gives it."""
    for name in ("max_completion_tokens", "max_output_tokens", "max_tokens"):
        raw = body[name]
        if raw and (found := whole(bytes(raw[:20]).decode("ascii", "replace"))) is not None:
            return found
    return None
