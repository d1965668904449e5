"""Every API we read: its words, its model, its modality, and nothing else of it."""

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

from ext_proc import parse
from ext_proc.parse.apis import APIS, Form
from ext_proc.protocol import Decide
from tests.ext_proc.bodies import BODIES, PIXEL, Q, chat, said, text, user


def read(body: Any, path: str, **more: Any) -> parse.Parsed:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    asked = Decide({":method": "POST", ":path": path}, {}, None, raw, rewritable=True)
    return parse.read(asked, turn=1, auto_model="auto", window=512, **more)


ROWS = [
    pytest.param(path, *row, id=f"{path}-{i}") for path, rows in sorted(BODIES.items()) for i, row in enumerate(rows)
]


@pytest.mark.parametrize(("path", "body", "words", "modality"), ROWS)
def test_the_users_words_are_read_and_nothing_else(path, body, words, modality):
    found = read(body, path)
    assert not found.malformed
    assert (found.request.model, found.text, found.request.modality) == ("m", words, modality)


def test_the_readme_lists_every_path_and_no_other():
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    table = readme.partition("### What is read of a request")[2].partition("\n\nOf each")[0]
    listed = [path for row in table.splitlines() for path in re.findall(r"`(/[^`]+)`", row.partition(" | ")[0])]
    assert sorted(listed) == sorted(APIS)


def test_every_json_api_has_a_corpus_of_twenty():
    assert set(BODIES) == {path for path, api in APIS.items() if not isinstance(api, Form)}
    assert {path: len(rows) for path, rows in BODIES.items() if len(rows) < 20} == {}


@pytest.mark.parametrize("path", sorted(BODIES))
def test_auto_is_spliced_in_every_json_api(path):
    for body, _, _ in BODIES[path]:
        raw = json.dumps(body | {"model": "auto"}).encode()
        found = read(raw, path)
        assert found.request.auto
        assert json.loads(found.with_model(raw, 'x"y')) == body | {"model": 'x"y'}


def test_a_prefix_before_the_version_is_no_matter_and_one_before_a_bare_name_is():
    assert read(chat(user(Q)), "/openai/v1/chat/completions/").request.api == "chat"
    assert read({"query": Q}, "/gateway/v2/rerank?x=1").request.api == "rerank"
    for path in ("/credit/score", "/v1/v1x/score", "/v1", "/v1/", "/v3/rerank", "/v1/tokenize/x"):
        assert read({"queries": Q, "query": Q}, path).request.api is None


def test_what_stands_around_the_words_counts_as_prompt():
    long = "a rule " * 4000
    for path, bare, full in [
        ("/v1/messages", chat(user(Q)), chat(user(Q), system=long)),
        ("/v1/messages", chat(user(Q)), chat(user(Q), system=[text(long)])),
        ("/v1/chat/completions", chat(user(Q)), chat(user(Q), tools=[{"type": "function", "description": long}])),
        ("/v1/responses", said(Q), said(Q, instructions=long)),
        ("/v1/responses", said(Q), said(Q, tools=[{"type": "function", "description": long}])),
        ("/v1/messages", chat(user(Q)), chat(user(Q), tools=[{"name": "f", "description": long}])),
        ("/tokenize", chat(user(Q)), chat(user(Q), tools=[{"type": "function", "description": long}])),
        ("/rerank", {"query": Q, "documents": []}, {"query": Q, "documents": [long]}),
        ("/score", {"text_1": Q, "text_2": ""}, {"text_1": Q, "text_2": long}),
    ]:
        assert read(bare, path).request.prompt_tokens < 40
        assert 7000 < read(full, path).request.prompt_tokens < 7100
        assert read(full, path).text == Q


def test_pictures_and_files_do_not_count_as_prompt():
    blob = "A" * 400_000
    for part in (
        {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": blob}},
        {"type": "file", "file": {"file_data": blob}},
        {"type": "input_file", "file_data": blob},
        {"type": "image", "source": {"data": blob}},
    ):
        assert read(chat(user([part, text(Q)])), "/v1/messages").request.prompt_tokens < 40
    document = {"content": [{"type": "image_url", "image_url": PIXEL + blob}]}
    assert read({"query": Q, "documents": [document]}, "/rerank").request.prompt_tokens < 40


def test_token_ids_are_counted():
    for path, body in [
        ("/v1/completions", {"prompt": [1, 2, 3]}),
        ("/v1/embeddings", {"input": [[1, 2], [3]]}),
        ("/detokenize", {"tokens": [1, 2, 3]}),
    ]:
        assert read(body, path).request.prompt_tokens == 3


@pytest.mark.parametrize("spelling", ["model", "mod\\u0065l"])
@pytest.mark.parametrize(
    "path", ["/v1/chat/completions", "/v1/messages", "/v1/responses", "/v1/completions", "/rerank"]
)
def test_of_two_models_the_one_the_pod_reads_is_ours_too(path, spelling):
    for first, last in (("a", "b"), ("b", "a"), ("auto", "b"), ("a", "auto")):
        raw = f'{{"model": "{first}", "messages": [], "{spelling}": "{last}", "x": {{"model": "z"}}}}'.encode()
        found = read(raw, path)
        assert found.request.model == json.loads(raw)["model"] == last
        assert found.request.auto == (last == "auto")


MALFORMED = [
    b"", b" ", b"[]", b'"x"', b"123", b"null", b"true", b"{", b"}", b'{"messages":', b'{"messages": [', b'{"a" 1}',
    b"\xff\xfe{", b"{'a': 1}", b'{"a":' * 50_000, b"[" * 50_000, b'{"a": 1} x', b'{"a": 1}{"a": 1}', b'{"a": "\n"}',
    b"\x00", b'{"a": 01}', b'{"a": .5}', b'{"a": 1,}', b'{,"a": 1}', b"{a: 1}", b'{"a": tru}', b'{"a": "\\x"}',
    b'{"a": "\\ud8"}', b"--x\r\n", b"a=1&b=2", b"\x1f\x8b\x08\x00",
]  # fmt: skip


@pytest.mark.parametrize("path", sorted(APIS))
def test_malformed_bodies_are_said_to_be(path):
    assert len(MALFORMED) >= 30
    for body in MALFORMED:
        found = read(body, path)
        assert (found.malformed, found.request.model, found.text) == (True, None, "")


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
@pytest.mark.parametrize("field", ["temperature", "max_tokens", "seed", "priority"])
def test_numbers_that_are_none_do_no_harm(number, field):
    raw = f'{{"model": "m", "{field}": {number}, "messages": [{{"role": "user", "content": "{Q}"}}]}}'.encode()
    found = read(raw, "/v1/chat/completions")
    assert (found.request.model, found.text, found.request.max_tokens) == ("m", Q, None)


def test_reading_costs_no_more_for_a_longer_prompt_but_one_pass_over_it():
    def cost(tokens: int) -> float:
        body = json.dumps(chat(user("word " * tokens + Q))).encode()
        return min(timed(body) for _ in range(5))

    def timed(body: bytes) -> float:
        began = time.process_time()
        assert read(body, "/v1/chat/completions").text.endswith(Q)
        return time.process_time() - began

    assert cost(4_000) < 0.002
    assert cost(32_000) < 0.005
    assert cost(1_000_000) < 0.05


SURROGATES = ["\\ud83d", "\\ude00", "\\ude00\\ud83d"]


@pytest.mark.parametrize("bad", SURROGATES)
def test_an_unpaired_surrogate_in_any_place_is_read_over(bad):
    in_content = f'{{"model": "m", "messages": [{{"role": "user", "content": "{Q}{bad}"}}]}}'.encode()
    assert read(in_content, "/v1/chat/completions").text.startswith(Q)
    in_model = f'{{"model": "m{bad}", "messages": [{{"role": "user", "content": "{Q}"}}]}}'.encode()
    found = read(in_model, "/v1/chat/completions")
    assert found.text == Q
    assert found.request.model != "m"
    found.text.encode()


LENIENT = [
    '{"a": NaN, "model": "auto", "messages": []}',
    '{"model" :\t"auto" , "a": [NaN, {"model": "x"}], "messages": []}',
    '{"messages": [], "\\ud83d": {"}": "{\\"model\\": 1}"}, "mod\\u0065l":"au\\u0074o"}',
    '{"model": "b", "é\\udc00": 1, "model": "auto", "t": -Infinity}',
    '\ufeff {"été": "🦊", "model": "auto", "n": 1e999}',
    '\n{"x":"\\\\","y":[[]],"z":{},"w":"\\"","model":\r\n"auto","q":NaN}\n ',
]


@pytest.mark.parametrize("body", LENIENT)
def test_auto_is_spliced_where_only_a_lenient_reader_gets_through(body):
    raw = body.encode("utf-8", "surrogatepass")
    found = read(raw, "/v1/chat/completions")
    assert found.request.auto
    changed = found.with_model(raw, "qwen")
    expected, got = json.loads(raw), json.loads(changed)
    assert (expected.pop("model"), got.pop("model")) == ("auto", "qwen")
    assert repr(got) == repr(expected)  # NaN is not equal to itself
    assert len(changed) - len(raw) == len('"qwen"') - (found.model_span[1] - found.model_span[0])


def test_auto_in_utf16_is_read_and_stays():
    raw = json.dumps(chat(user(Q)) | {"model": "auto"}).encode("utf-16")
    found = read(raw, "/v1/chat/completions")
    assert (found.request.model, found.request.auto, found.text) == ("auto", False, Q)
