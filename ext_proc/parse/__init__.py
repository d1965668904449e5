"""What a request says: headers and body into a policy Request and the text to embed.

A JSON body is scanned once, in C; only the fields a decision needs are decoded, and of a long conversation only
its last turns. Its bytes are never rewritten for reading: where `model` must change, the span of that one value is
kept.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from ext_proc import jsonbody, names
from ext_proc.parse import apis, form, hints
from ext_proc.parse.apis import Api
from ext_proc.parse.said import whole
from ext_proc.protocol import Decide
from policy.types import Request

_NO_PATHS: Mapping[str, Api] = {}


class Parsed(msgspec.Struct, frozen=True, kw_only=True):
    """A request as read."""

    request: Request
    text: str = ""
    """What to embed, newest turn first; never logged."""
    user: str | None = None
    model_span: tuple[int, int] | None = None
    """Where the value of `model` stands in the body, its quotes included."""
    quoted: bool = True
    """It has quotes: a form has none."""
    malformed: bool = False
    cut: bool = False
    """Turns were longer than the encoder's window: head and tail were kept."""
    ignored_hints: int = 0
    prompt: tuple[memoryview, ...] = ()
    """What the model reads, in order, undecoded."""

    def with_model(self, body: bytes, model: str) -> bytes:
        """*body* with another model in the place of its own; not a byte else changes."""
        assert self.model_span is not None  # noqa: S101 - who asks for it has looked
        start, end = self.model_span
        return b"".join((body[:start], msgspec.json.encode(model) if self.quoted else model.encode(), body[end:]))


def reads(headers: Mapping[str, str], paths: Mapping[str, Api] = _NO_PATHS) -> bool:
    """Whether a request of these headers has a body that is read here."""
    return "upgrade" not in headers and _api(*_line(headers), paths) is not None


def is_read(asked: Decide, paths: Mapping[str, Api] = _NO_PATHS) -> bool:
    """Whether `read` would look into the body."""
    return bool(asked.body) and _api(*_line(asked.headers), paths) is not None


def read(
    asked: Decide,
    *,
    turn: int,
    auto_model: str,
    window: int,
    paths: Mapping[str, Api] = _NO_PATHS,
    tenant_header: str | None = None,
    subset_header: bool = False,
) -> Parsed:
    """*window*: characters of text the encoder can use; *paths*: the operator's own APIs. *tenant_header*: the one a
    rule asks for, None: no rule does. *subset_header*: the gateway may hint at a subset by header, where it gives no
    metadata.

    Never raises for anything a client sent.
    """
    headers = asked.headers
    wishes, ignored = hints.read(headers.get(names.HINT, ""))
    method, path = _line(headers)
    api = _api(method, path, paths)
    told: dict[str, Any] = {
        "path": path,
        "method": method,
        "api": None if api is None else api.name,
        "hints": wishes,
        "context_version": whole(headers.get(names.CONTEXT, "")),
        "subset": hints.subset(headers) if subset_header and asked.subset is None else asked.subset,
        "turn": turn,
    }
    if tenant_header is not None:
        told["tenants"] = hints.tenants(headers.get(tenant_header, ""))
    if api is None or asked.body is None or "content-encoding" in headers:
        return Parsed(request=Request(**told), ignored_hints=ignored)
    try:
        body = jsonbody.beginning(asked.body) if asked.cut else asked.body
        said = api.read(headers, body, window, auto_model if asked.rewritable else None)
    except (jsonbody.Malformed, form.Malformed):
        return Parsed(request=Request(**told), malformed=True, ignored_hints=ignored)
    return Parsed(
        request=Request(
            **told,
            model=said.model,
            auto=said.span is not None,
            stream=said.stream,
            modality=said.modality,
            prompt_tokens=said.tokens,
            max_tokens=said.max_tokens,
            asked=said.asked,
            follow_up=said.turns > 1,
        ),
        text=said.text,
        user=said.user,
        model_span=said.span,
        quoted=said.quoted,
        cut=said.cut,
        ignored_hints=ignored,
        prompt=said.prompt,
    )


def _line(headers: Mapping[str, str]) -> tuple[str, str]:
    return headers.get(":method", "POST"), headers.get(":path", "/").partition("?")[0]


def _api(method: str, path: str, paths: Mapping[str, Api]) -> Api | None:
    return apis.of(path, paths) if method == "POST" else None
