"""What must hold for any bytes, one function a door. Hypothesis calls them in every test run, atheris for as long as
one likes (`python -m tests.fuzz`)."""

import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress

from google.protobuf.message import DecodeError

from ext_proc import config, parse, wire
from ext_proc.errors import ConfigError
from ext_proc.protocol import (
    Body,
    Chunk,
    Decide,
    Event,
    Exchange,
    Headers,
    Mode,
    Pass,
    Refuse,
    ResponseBody,
    ResponseHeaders,
    ResponseTrailers,
    Route,
    Trailers,
)
from ext_proc.sources import address
from ext_proc.usage import MAX_EVENT, MAX_JSON, UsageReader

WINDOW = 512
PATHS = (
    "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings", "/v1/messages", "/v1/rerank",
    "/v1/score", "/tokenize", "/v1/audio/transcriptions", "/pooling",
)  # fmt: skip
ENCODINGS = (None, None, None, "gzip", "br", "zstd", "deflate", "gzip, br")
_LONG = re.compile(r"[A-Za-z0-9+/=_-]{256}")
_PROXIES = ("10.0.0.0/8", "fd00::/8")


def body(data: bytes) -> None:
    """A request body: read without an error, into bounded text; `auto` points at the model's own bytes."""
    if len(data) < 2:
        return
    path, encoding, rest = PATHS[data[0] % len(PATHS)], ENCODINGS[data[1] % len(ENCODINGS)], data[2:]
    headers = {":method": "POST", ":path": path, "content-type": "application/json"}
    if encoding is not None:
        headers["content-encoding"] = encoding
    if "audio" in path:
        headers["content-type"] = "multipart/form-data; boundary=b"
    cut = bool(data[1] & 128)
    asked = Decide(headers, {}, None, rest, not cut, cut)
    parsed = parse.read(asked, turn=1, auto_model="auto", window=WINDOW)
    assert parsed == parse.read(asked, turn=1, auto_model="auto", window=WINDOW)
    assert len(parsed.text) <= 2 * WINDOW + 1
    assert not _LONG.search(parsed.text)
    assert len(parsed.request.model or "") <= 256
    assert parsed.request.prompt_tokens >= 0
    if parsed.model_span is not None:
        start, end = parsed.model_span
        assert json.loads(rest[start:end]) == "auto"
    parsed.text.encode()  # no lone surrogate goes on to the tokenizer


def hints(data: bytes) -> None:
    """A hint header: at most so many, of known keys."""
    text = data.decode("latin-1")
    found, ignored = parse._hints(text)
    assert len(found) <= parse.MAX_HINTS
    assert ignored >= 0
    assert all(hint.key in parse.HINT_KEYS and 0 < len(hint.value) <= 256 for hint in found)


def forwarded(data: bytes) -> None:
    """X-Forwarded-For: an address or none; and what a client writes further left changes nothing."""
    hops, text = (data[0] % 4 if data else 0), data[1:].decode("latin-1")
    address.client_address({"x-forwarded-for": text}, {}, config.Places(trusted_hops=hops))
    for settings in (config.Places(), config.Places(trusted_proxies=_PROXIES)):
        found = address.client_address({"x-forwarded-for": text}, {}, settings)
        assert found is None or address.client_address({"x-forwarded-for": f"1.2.3.4, {text}"}, {}, settings) == found


def yaml(data: bytes) -> None:
    """A configuration: one that is right, or an error in words."""
    with suppress(ConfigError):
        config.parse(data)


def message(data: bytes) -> None:
    """A gRPC message: an event, nothing, or undecodable."""
    try:
        event = wire.event(data)
    except DecodeError:
        return
    if event is not None:
        list(Exchange(1 << 20, parse.reads).feed(event))


def answer(data: bytes) -> None:
    """An answer that passes: whatever its pieces, usage is numbers and memory is bounded."""
    kind = "text/event-stream" if data[:1] < b"\x80" else "application/json"
    size = 1 + (data[1] if len(data) > 1 else 0)
    reader = UsageReader({"content-type": kind})
    for at in range(2, len(data), size):
        reader.feed(data[at : at + size], ends=at + size >= len(data))
        assert len(reader._tail) <= max(MAX_EVENT, MAX_JSON)
    for number in (reader.usage.prompt, reader.usage.completion, reader.usage.cached):
        assert number is None or number >= 0


ROUTE = Route(node="10.0.0.1:8000", headers={})
_MODES = tuple(Mode)


def exchange(data: bytes) -> None:
    """Any order of messages: one answer each outside full duplex; in it the client's bytes, in order, once."""
    if len(data) < 2:
        return
    request, response = _MODES[data[0] % 5], _MODES[data[0] // 5 % 5]
    reads = bool(data[1] & 1)
    stream = Exchange(1 << 12, lambda _: reads)
    head = Headers({":path": "/"}, ends=bool(data[1] & 2), modes=(request, response), observing=bool(data[1] & 4))
    sent, got, refused, decided = b"", b"", False, 0
    events: list[Event] = [head, *_events(data[2:])]
    for event in events:
        commands = []
        for command in stream.feed(event):
            if isinstance(command, Decide):
                decided += 1
                commands += list(stream.answer(ROUTE))
            else:
                commands.append(command)
        refused |= any(isinstance(command, Refuse) for command in commands)
        if head.observing:
            assert not commands
        elif request is not Mode.FULL_DUPLEX and isinstance(event, (Body, Trailers)) and not refused:
            assert len(commands) == 1
        elif response is not Mode.FULL_DUPLEX and isinstance(event, ResponseBody):
            assert [type(command) for command in commands] == [Pass]
        if isinstance(event, Body):
            sent += event.data
        got += b"".join(c.data for c in commands if isinstance(c, Chunk) and c.phase.name == "REQUEST_BODY")
    assert decided <= 2
    if request is Mode.FULL_DUPLEX and not head.observing:
        assert sent.startswith(got)


def _events(data: bytes) -> list[Event]:
    """Each byte a message; its upper bits say how large."""
    kinds: Mapping[int, Callable[[int], Event]] = {
        0: lambda n: Body(bytes([n % 251]) * n),
        1: lambda n: Body(bytes([n % 251]) * (n * 64)),
        2: lambda n: Body(bytes([n % 251]) * n, ends=True),
        3: lambda _: Trailers(),
        4: lambda _: ResponseHeaders(),
        5: lambda n: ResponseBody(b"r" * n),
        6: lambda n: ResponseBody(b"r" * n, ends=True),
        7: lambda _: ResponseTrailers(),
    }
    return [kinds[byte & 7](byte >> 3) for byte in data[:64]]


TARGETS: Mapping[str, Callable[[bytes], None]] = {
    target.__name__: target for target in (body, hints, forwarded, yaml, message, answer, exchange)
}
CHAT = (
    b'{"model":"auto","stream":true,"max_tokens":5,"user":"u","messages":[{"role":"system","content":"s"},'
    b'{"role":"user","content":[{"type":"text","text":"h\\u00e9\\ud83d"},{"type":"image_url","image_url":'
    b'{"url":"data:image/png;base64,AAAA"}}]},{"role":"assistant","content":null,"tool_calls":[]}]}'
)
SEEDS: Mapping[str, tuple[bytes, ...]] = {
    "body": (
        b"\0\0" + CHAT,
        b"\0\x80" + CHAT[:-30],
        b'\1\0{"model":"auto","prompt":["a","b"],"seed":9007199254740993}',
        b'\2\0{"model":"m","input":[{"role":"user","content":[{"type":"input_text","text":"hi"}]}],"temperature":NaN}',
        b'\3\0{"input":[[1,2,3],[4]]}',
        b'\4\0{"system":[{"type":"text","text":"s"}],"messages":[{"role":"user","content":"hi"}],'
        b'"metadata":{"user_id":"u"}}',
        b'\5\0{"query":"q","documents":["a","b"]}',
        b'\6\0{"text_1":"a","text_2":["b"]}',
        b'\x08\0--b\r\ncontent-disposition: form-data; name="model"\r\n\r\nw\r\n--b--\r\n',
        b"\0\3\x1f\x8b\x08\0\0\0\0\0\0\3",
    ),
    "hints": (b"zone=us-east-1a, region=eu;require, node=10.0.0.1:8000", b"avoid=a,,=,tier=degraded;x;require"),
    "forwarded": (b"\1203.0.113.7, [2001:db8::1]:443, 10.0.0.1", b"\0unknown, _x, ::ffff:1.2.3.4, fe80::1%eth0"),
    "yaml": (
        b"server: {port: 9002, workers: 2}\nrules: {pools: {code: {intents: [coding]}}, strategy: round_robin}\n",
        b"fleet: {nodes: [{address: '10.0.0.1:8000', latitude: 1.5}]}\nplaces: {networks: [{cidr: 10.0.0.0/8}]}\n",
        b"a: &a [1, *a]\n",
    ),
    "message": (b"\x12\x10\n\x0e\n\x0c\n\5:path\x1a\3/v1", b"\x22\5\n\3abc"),
    "answer": (
        b'\0\x07data: {"usage":{"prompt_tokens":1}}\n\n',
        b'\xff\x03{"usage":{"input_tokens":1,"output_tokens":2}}',
    ),
    "exchange": (b"\x04\1\x08\x0a\x03", b"\x02\1\x12\x04\x2d\x2e", b"\x01\1\x0a", b"\x00\5\x0a"),
}
