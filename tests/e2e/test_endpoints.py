"""Every endpoint through a real Envoy: what is read of it decides, and its body arrives as it was sent."""

import gzip
import hashlib
import json
import os
import zlib
from collections.abc import Callable
from typing import Any

import brotli
import httpx
import pytest

from ext_proc import names
from ext_proc.unpack import zstd
from tests.e2e.world import World
from tests.ext_proc.bodies import BODIES, Q, chat, user

CODE = "Write a Python function that sorts a list of strings by length."
MODEL = "standin"


def post(world: World, path: str, body: bytes, marker: str, **headers: str) -> httpx.Response:
    """One request with a body of bytes."""
    lines = {"x-request-id": marker, "content-type": "application/json"}
    with world.client() as client:
        return client.post(path, content=body, headers=lines | {k.replace("_", "-"): v for k, v in headers.items()})


def arrived(world: World, marker: str, body: bytes) -> bool:
    """The pod got these very bytes."""
    return world.last(marker).sha256 == hashlib.sha256(body).hexdigest()


@pytest.mark.parametrize("path", sorted(BODIES))
def test_every_body_of_the_corpus_arrives_byte_for_byte(world: World, marker: str, path: str) -> None:
    for i, (given, _, _) in enumerate(BODIES[path]):
        body = json.dumps(given | {"model": MODEL, "max_tokens": 1}, indent=i % 3 or None).encode()
        response = post(world, path, body, f"{marker}-{i}")
        assert response.status_code in (200, 400), response.text  # the pod's own word on what it does not take
        assert arrived(world, f"{marker}-{i}", body)


ODD = [
    b'{"model":"standin","seed":9007199254740993,"max_tokens":1,"messages":[{"role":"user","content":"x"}]}',
    b'{"temperature":1.0,"max_tokens":1,"top_p":1e0,"model":"standin","messages":[{"content":"x","role":"user"}]}',
    b'{"max_tokens":1,"messages":[{"role":"user","content":"\\u00e9\\u4e2d\\/\\ud83e\\udd8a"}],"model":"standin"}',
    '{"max_tokens":1,"messages":[{"role":"user","content":"é中🦊"}],"model":"standin"}'.encode(),
    b'{"model":"nope","max_tokens":1,"messages":[{"role":"user","content":"x"}],"model":"standin"}',
    b'\n\t {"model" : "standin" ,"max_tokens":1, "messages":[ {"role":"user", "content":"x"} ] }\r\n ',
    b'{"model":"standin","max_tokens":1,"temperature":NaN,"messages":[{"role":"user","content":"x"}]}',
    b'{"model":"standin","max_tokens":1,"n":-Infinity,"messages":[{"role":"user","content":"x"}]}',
    b'{"model":"standin","max_tokens":1,"p":1e999,"messages":[{"role":"user","content":"x"}]}',
    b'{"model":"standin","max_tokens":1,"x":123456789012345678901234567890.00,"messages":[{"role":"user","content":"x"}]}',
    *[b'{"model":"standin","max_tokens":1,"messages":[{"role":"user","content":"a' + bad + b'b"}]}'
      for bad in (rb"\ud83d", rb"\ude00", rb"\ude00\ud83d", rb"\u0000", rb"\u2028")],
    b'{"\\ud83d":1,"model":"standin","max_tokens":1,"messages":[{"role":"user","content":"x"}]}',
]  # fmt: skip


def test_odd_json_arrives_byte_for_byte(world: World, marker: str) -> None:
    for i, body in enumerate(ODD):
        response = post(world, "/v1/chat/completions", body, f"{marker}-{i}")
        assert response.status_code == 200, response.text
        assert arrived(world, f"{marker}-{i}", body)


@pytest.mark.parametrize("odd", [b'"t":NaN', b'"t":1e999', b'"\\ud83d":1'])
def test_auto_becomes_a_model_where_only_a_lenient_reader_gets_through(world: World, marker: str, odd: bytes) -> None:
    if world.mode == "headers":
        pytest.skip("headers-only sees no body; pods may list `auto` as an alias")
    body = b"{" + odd + b',"model":"auto","max_tokens":1,"messages":[{"role":"user","content":"x"}]}'
    assert post(world, "/v1/chat/completions", body, marker).json()["model"] == MODEL
    assert arrived(world, marker, body.replace(b'"auto"', b'"standin"'))


def test_malformed_bodies_are_the_pods_to_refuse(world: World, marker: str) -> None:
    bodies = [
        b"",
        b"[]",
        b'"x"',
        b"123",
        b"null",
        b"{",
        b'{"model":',
        b'{"messages": [',
        b"\xff\xfe{",
        b"{'a': 1}",
        b"\x00",
    ]
    for i, body in enumerate(bodies):
        response = post(world, "/v1/chat/completions", body, f"{marker}-{i}")
        assert response.status_code == 400
        assert response.json()["error"]["type"] == "Bad Request"
        assert arrived(world, f"{marker}-{i}", body)


@pytest.mark.parametrize(
    "bad", [b"\xed\xa0\xbd", b"zone=\xff\xfe", b"zone=NaN", b"=" * 4000, b";require", b"node=\\ud83d"]
)
def test_a_hostile_hint_breaks_nothing(world: World, marker: str, bad: bytes) -> None:
    body = json.dumps(chat(user(Q), max_tokens=1) | {"model": MODEL})
    headers = [(b"x-request-id", marker.encode()), (b"x-route-hint", bad), (b"x-context-version", b"Infinity")]
    with world.client() as client:
        assert client.post("/v1/chat/completions", content=body, headers=headers).status_code == 200


LIBRARY: dict[str, Any] = {
    "/v1/chat/completions": chat(user(CODE), max_tokens=1),
    "/v1/completions": {"prompt": [CODE], "max_tokens": 1},
    "/v1/embeddings": {"input": CODE},
    "/v1/responses": {"input": [user([{"type": "input_text", "text": CODE}])], "max_output_tokens": 1},
    "/v1/messages": chat(user(CODE), max_tokens=1),
    "/v1/rerank": {"query": CODE, "documents": ["a", "b"]},
    "/v1/score": {"text_1": CODE, "text_2": ["a"]},
    "/pooling": {"input": CODE},
    "/classify": {"input": [CODE]},
    "/tokenize": {"prompt": CODE},
}


@pytest.mark.parametrize("path", LIBRARY)
def test_what_is_asked_is_understood_on_every_endpoint(world: World, marker: str, path: str) -> None:
    if world.mode == "headers":
        pytest.skip("headers-only sees no body")
    response = post(world, path, json.dumps(LIBRARY[path] | {"model": MODEL}).encode(), marker)
    assert response.status_code == 200, response.text
    assert response.headers[names.INTENT] == "coding"


PACKED: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress, "deflate": zlib.compress, "br": brotli.compress, "zstd": zstd.compress,
}  # fmt: skip


@pytest.mark.parametrize("encoding", PACKED)
def test_a_compressed_body_is_read_and_arrives_as_it_was_sent(world: World, marker: str, encoding: str) -> None:
    body = PACKED[encoding](json.dumps(LIBRARY["/v1/chat/completions"] | {"model": MODEL}).encode())
    response = post(world, "/v1/chat/completions", body, marker, content_encoding=encoding)
    assert response.status_code == 400  # vLLM itself unpacks nothing
    assert arrived(world, marker, body)
    assert world.last(marker).header("content-encoding") == encoding
    assert world.mode == "headers" or response.headers[names.INTENT] == "coding"


CLOSED = {
    "bomb": ("gzip", gzip.compress(bytes(64 * 1024 * 1024))),
    "bomb of zstd": ("zstd", zstd.compress(bytes(64 * 1024 * 1024))),
    "cut off": ("br", brotli.compress(b"x" * 5000)[:-4]),
    "wrong label": ("zstd", b'{"model": "standin", "messages": []}'),
    "noise": ("deflate", os.urandom(5000)),
    "two": ("gzip, br", brotli.compress(gzip.compress(b"{}"))),
    "unknown": ("lzw", b"{}"),
}


@pytest.mark.parametrize("name", CLOSED)
def test_a_body_that_stays_closed_goes_on_to_a_pod(world: World, marker: str, name: str) -> None:
    encoding, body = CLOSED[name]
    response = post(world, "/v1/chat/completions", body, marker, content_encoding=encoding)
    assert response.status_code == 400
    assert set(response.json()["error"]) == {"message", "type", "param", "code"}
    assert names.POOL in response.headers
    assert arrived(world, marker, body)


@pytest.mark.parametrize("order", ["model first", "model last"])
def test_a_large_recording_is_routed_by_its_form_and_arrives_whole(world: World, marker: str, order: str) -> None:
    sound = ("a.wav", os.urandom(12_000_000) + b"--X\r\n")
    parts: list[Any] = [("model", (None, MODEL)), ("file", sound)]
    request = httpx.Request("POST", world.url, files=parts if order == "model first" else parts[::-1])
    body = request.read()
    path = "/v1/audio/transcriptions"
    response = post(world, path, body, marker, content_type=request.headers["content-type"])
    assert response.status_code == 200, response.text
    assert arrived(world, marker, body)
    wrong = body.replace(b"\r\n\r\nstandin\r\n", b"\r\n\r\nnot-this\r\n")
    response = post(world, path, wrong, f"{marker}-wrong", content_type=request.headers["content-type"])
    assert response.status_code == 404
    assert bool(world.all(f"{marker}-wrong")) == (world.mode == "headers")  # we refuse it where we read it


def test_a_form_nobody_can_read_is_the_pods_to_refuse(world: World, marker: str) -> None:
    response = post(world, "/v1/audio/transcriptions", b"--x\r\n\r\n", marker, content_type="multipart/form-data")
    assert response.status_code == 400
    assert world.last(marker).bytes == 7


@pytest.mark.parametrize("mode", ["buffered", "duplex"])
def test_an_own_json_api_is_routed_by_its_words(new_world: Any, marker: str, mode: str) -> None:
    paths = {"/my/api": {"text": "/payload/question", "model": "/payload/model"}}
    world: World = new_world(mode, settings={"server": {"paths": paths}})
    body = json.dumps({"payload": {"question": CODE, "model": "auto"}, "model": "untouched"}).encode()
    response = post(world, "/my/api", body, marker)
    assert response.headers[names.INTENT] == "coding"
    assert arrived(world, marker, body.replace(b'"auto"', b'"standin"'))
    assert post(world, "/my/api", body.replace(b'"auto"', b'"nope"'), marker).status_code == 404
