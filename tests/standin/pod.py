"""A stand-in for one vLLM pod: its APIs, its streams, its errors and its metrics, without a model.

It remembers every request it got (GET /__seen), so that a test can say what reached the pod, byte for byte.
"""

import asyncio
import hashlib
import json
import math
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass, field
from email import message_from_bytes
from typing import Any

from aiohttp import web

from tests.standin import metrics, shapes, sse
from tests.standin.engine import Engine

FROM = "x-standin-from"
"""`latitude,longitude` of the client: the pod waits as long as light in fibre takes there and back."""
STATUS = "x-standin-status"
"""Answer with this status."""
WAIT = "x-standin-wait"
"""Seconds before the first byte of the answer."""

_POOLED = ("input", "messages")
_SCORED = ("text_1", "queries", "data_1")
_TEXTS: dict[str, tuple[str, ...]] = {
    "/v1/chat/completions": ("messages",),
    "/v1/completions": ("prompt",),
    "/v1/responses": ("input",),
    "/v1/messages": ("messages",),
    "/v1/messages/count_tokens": ("messages",),
    "/v1/embeddings": _POOLED,
    "/pooling": _POOLED,
    "/classify": _POOLED,
    "/score": _SCORED,
    "/v1/score": _SCORED,
    "/rerank": ("query",),
    "/v1/rerank": ("query",),
    "/v2/rerank": ("query",),
    "/v1/audio/transcriptions": ("file",),
    "/v1/audio/translations": ("file",),
}
"""Where each API keeps what it works on: one of these must be there."""
SOUND_BYTES = 6000
"""What a sound file costs, as bytes of prompt: speech is read in windows of 1,500 positions, however long its file."""
_HEADERS = {"server": "uvicorn", "vary": "Origin"}


@dataclass
class Seen:
    """One request as it arrived."""

    method: str
    path: str
    headers: list[tuple[str, str]]
    framing: str
    sha256: str = ""
    bytes: int = 0
    model: str | None = None

    def header(self, name: str) -> str | None:
        """The last value of *name*."""
        return next((value for key, value in reversed(self.headers) if key == name), None)


@dataclass
class Pod:
    """One stand-in; *address* is where it listens."""

    address: str
    models: tuple[str, ...] = ("standin",)
    latitude: float | None = None
    longitude: float | None = None
    context_length: int = 1_000_000
    engine: Engine = field(default_factory=Engine)
    seen: list[Seen] = field(default_factory=list)
    broken: bool = False
    """Every request gets an error, at once; its metrics are well."""
    _runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Listen."""
        app = web.Application(client_max_size=2**31)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2, auto_decompress=False)
        await self._runner.setup()
        host, _, port = self.address.rpartition(":")
        await web.TCPSite(self._runner, host.strip("[]"), int(port), reuse_address=True).start()

    async def stop(self) -> None:
        """Be gone: connections are closed, new ones refused."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        path = request.path
        if path == "/__seen":
            return web.json_response([asdict(seen) for seen in self.seen])
        if path == "/metrics":
            return web.Response(text=metrics.page(self.engine, self.models[0]))
        seen = Seen(request.method, request.path_qs, _pairs(request), _framing(request))
        self.seen.append(seen)
        body = await request.read()
        seen.sha256, seen.bytes = hashlib.sha256(body).hexdigest(), len(body)
        await asyncio.sleep(self._distance_s(request) + float(request.headers.get(WAIT, 0)))
        if STATUS in request.headers or self.broken:
            return _json(shapes.error("on demand", "StandIn", None, 500), int(request.headers.get(STATUS, 500)))
        if path in _TEXTS:
            return await self._generate(request, seen, body)
        return self._small(request, body)

    def _distance_s(self, request: web.Request) -> float:
        """A round trip: 100 km to the millisecond, and two milliseconds for everything that is not distance."""
        if FROM not in request.headers or self.latitude is None or self.longitude is None:
            return 0.0
        latitude, longitude = map(float, request.headers[FROM].split(","))
        return 0.002 + kilometres(latitude, longitude, self.latitude, self.longitude) / 100_000

    def _small(self, request: web.Request, body: bytes) -> web.Response:
        match request.path:
            case "/v1/models":
                return _json(shapes.models(self.models, self.context_length))
            case "/tokenize":
                count = max(1, len(body) // 4)
                tokens = list(range(min(count, 1000)))
                return _json(
                    {"count": count, "max_model_len": self.context_length, "tokens": tokens, "token_strs": None}
                )
            case "/detokenize":
                return _json({"prompt": "hello"})
            case "/version":
                return _json({"version": "0.32.0"})
            case "/load":
                return _json({"server_load": self.engine.running + self.engine.waiting})
            case "/health" | "/ping":
                return web.Response(headers=_HEADERS)
            case _:
                return _json({"detail": "Not Found"}, 404)

    async def _generate(self, request: web.Request, seen: Seen, body: bytes) -> web.StreamResponse:
        if request.method != "POST":
            response = _json({"detail": "Method Not Allowed"}, 405)
            response.headers["allow"] = "POST"
            return response
        is_form = request.content_type == "multipart/form-data"
        asked = _form(request.headers["content-type"], body) if is_form else _json_body(body)
        asked = _checked(request.path, asked)
        if isinstance(asked, web.Response):
            return asked
        seen.model = model = asked.get("model") or self.models[0]
        if model not in self.models:
            names = ", ".join(self.models)
            message = f"The model `{model}` does not exist. Valid aliases: {names}."
            return _json(shapes.error(message, "NotFoundError", "model", 404), 404)
        count = int(
            asked.get("max_tokens") or asked.get("max_completion_tokens") or asked.get("max_output_tokens") or 16
        )
        given = next(asked[text] for text in _TEXTS[request.path] if text in asked)
        prompt = given[:SOUND_BYTES] if is_form else json.dumps(given).encode()
        async with self.engine.seat(prompt, count) as tokens:
            pooled = shapes.pooled(request.path, model, given, asked, tokens)
            if pooled is not None:
                return _json(pooled)
            if asked.get("stream") and not is_form:
                return await _stream(request, self._events(request.path, asked, model, tokens, count))
            text = "".join([word async for word in self.engine.words(count)])
        return _json(_whole(request.path, model, text, tokens, count))

    def _events(self, path: str, asked: dict[str, Any], model: str, tokens: int, count: int) -> AsyncIterator[bytes]:
        words = self.engine.words(count)
        with_usage = bool((asked.get("stream_options") or {}).get("include_usage"))
        match path:
            case "/v1/chat/completions":
                return sse.chat(model, words, tokens, count, with_usage)
            case "/v1/completions":
                return sse.completion(model, words, tokens, count, with_usage)
            case "/v1/messages":
                return sse.message(model, words, tokens)
            case _:
                return sse.responses(model, words, tokens)


def kilometres(lat_a: float, lon_a: float, lat_b: float, lon_b: float) -> float:
    """Great-circle distance."""
    a, b, turn = math.radians(lat_a), math.radians(lat_b), math.radians(lon_a - lon_b)
    h = math.sin((a - b) / 2) ** 2 + math.cos(a) * math.cos(b) * math.sin(turn / 2) ** 2
    return 2 * 6371.0 * math.asin(math.sqrt(h))


def _json_body(body: bytes) -> Any:
    """A JSON body, or vLLM's refusal of what is none."""
    try:
        return json.loads(body)
    except ValueError:
        detail = (
            f"1 validation error:\n  {{'type': 'json_invalid', 'loc': 'body.{len(body)}', "
            "'msg': 'JSON decode error', 'input': '<dict of 0 items>', 'ctx': {'error': 'Expecting value'}}"
        )
        return _json(shapes.error(detail, "Bad Request", f"body.{len(body)}", 400), 400)


def _form(content_type: str, body: bytes) -> dict[str, Any]:
    """A form's fields; those without a file name are text."""
    parts = message_from_bytes(f"content-type: {content_type}\r\n\r\n".encode() + body)
    out: dict[str, Any] = {}
    for part in parts.get_payload() if parts.is_multipart() else ():
        value = part.get_payload(decode=True)
        name = part.get_param("name", header="content-disposition")
        out[name] = value if part.get_filename() is not None else value.decode()
    return out


def _checked(path: str, asked: Any) -> dict[str, Any] | web.Response:
    """The body, or vLLM's refusal of it."""
    if isinstance(asked, web.Response):
        return asked
    texts = _TEXTS[path]
    if not isinstance(asked, dict) or not any(text in asked for text in texts):
        detail = (
            f"1 validation error:\n  {{'type': 'missing', 'loc': 'body.{texts[0]}', 'msg': 'Field required', "
            "'input': '<dict of 1 items>'}"
        )
        return _json(shapes.error(detail, "Bad Request", f"body.{texts[0]}", 400), 400)
    if texts == ("messages",) and asked["messages"] == []:
        detail = "Cannot apply chat template to an empty conversation. Provide at least one message."
        return _json(shapes.error(detail, "BadRequestError", None, 400), 400)
    return asked


def _whole(path: str, model: str, text: str, tokens: int, count: int) -> shapes.Json:
    match path:
        case "/v1/chat/completions":
            return shapes.chat(model, text, tokens, count)
        case "/v1/completions":
            return shapes.completion(model, text, tokens, count)
        case "/v1/messages":
            return shapes.message(model, text, tokens, count)
        case "/v1/audio/transcriptions" | "/v1/audio/translations":
            return shapes.transcription(text)
        case _:
            done = shapes.output(text, shapes.name("msg"), "completed")
            return shapes.response(model, shapes.name("resp"), [done], (tokens, count))


async def _stream(request: web.Request, events: AsyncIterator[bytes]) -> web.StreamResponse:
    headers = _HEADERS | {"content-type": "text/event-stream; charset=utf-8"}
    response = web.StreamResponse(headers=headers)
    response.enable_chunked_encoding()
    await response.prepare(request)
    async for event in events:
        await response.write(event)
    await response.write_eof()
    return response


def _json(body: Any, status: int = 200) -> web.Response:
    return web.Response(body=shapes.dumps(body), status=status, headers=_HEADERS | {"content-type": "application/json"})


def _pairs(request: web.Request) -> list[tuple[str, str]]:
    return [(key.decode().lower(), value.decode("utf-8", "surrogateescape")) for key, value in request.raw_headers]


def _framing(request: web.Request) -> str:
    if "content-length" in request.headers:
        return "content-length"
    return request.headers.get("transfer-encoding", "none")
