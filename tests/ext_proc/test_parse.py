"""What is read of a request, and what is left alone."""

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ext_proc import parse
from ext_proc.parse import hints
from ext_proc.parse.apis import APIS, Form
from ext_proc.protocol import Decide
from policy.types import Hint

WINDOW = 512
JSON = [path for path, api in APIS.items() if not isinstance(api, Form)]


def read(body: Any, path: str = "/v1/chat/completions", *, rewritable: bool = True, **headers: str) -> parse.Parsed:
    raw = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    lines = {":method": "POST", ":path": path, **{name.replace("_", "-"): value for name, value in headers.items()}}
    return parse.read(Decide(lines, {}, None, raw, rewritable), turn=1, auto_model="auto", window=WINDOW)


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def chat(*messages: Any, **fields: Any) -> dict[str, Any]:
    return {"model": "m", "messages": list(messages), **fields}


@pytest.mark.parametrize(
    ("path", "body", "api", "text"),
    [
        ("/v1/chat/completions", chat(user("hello")), "chat", "hello"),
        ("/openai/v1/chat/completions?x=1", chat(user("hello")), "chat", "hello"),
        ("/v1/completions", {"model": "m", "prompt": "hello"}, "completions", "hello"),
        ("/v1/completions", {"model": "m", "prompt": ["hello", "other"]}, "completions", "hello"),
        ("/v1/completions", {"model": "m", "prompt": [1, 2, 3]}, "completions", ""),
        ("/v1/completions", {"model": "m", "prompt": [[1, 2], [3]]}, "completions", ""),
        ("/v1/embeddings", {"model": "m", "input": "hello"}, "embeddings", "hello"),
        ("/v1/embeddings", {"model": "m", "input": ["hello", "b"]}, "embeddings", "hello"),
        ("/v1/responses", {"model": "m", "input": "hello"}, "responses", "hello"),
        ("/v1/responses", {"model": "m", "input": [user("hello")]}, "responses", "hello"),
        (
            "/v1/responses",
            {"model": "m", "input": [{"type": "message", **user([{"type": "input_text", "text": "hello"}])}]},
            "responses",
            "hello",
        ),
        ("/v1/messages", chat(user([{"type": "text", "text": "hello"}]), system="Be brief."), "messages", "hello"),
    ],
)
def test_the_question_is_found_in_every_api(path, body, api, text):
    found = read(body, path)
    assert (found.request.api, found.request.model, found.text) == (api, "m", text)
    assert not found.malformed


def test_other_paths_are_no_api_and_their_bodies_are_not_read():
    for path in ("/v1/models", "/", "/v1/chat", "/v1/audio/speech", "*"):
        found = read({"model": "m"}, path).request
        assert (found.api, found.model) == (None, None)


def test_a_body_that_cannot_be_seen_leaves_what_the_headers_say():
    for found in (read(chat(user("x")), content_encoding="gzip"), read(None)):
        assert (found.request.api, found.request.model, found.text, found.malformed) == ("chat", None, "", False)


def test_system_prompts_assistants_and_tools_are_not_the_question():
    body = chat(
        {"role": "system", "content": "You are a pirate."},
        user("Write a limerick about a whale in the Thames."),
        {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]},
        {"role": "tool", "content": "rhymes: gale, pale, vale"},
    )
    assert read(body).text == "Write a limerick about a whale in the Thames."


def test_a_turn_that_says_little_is_read_with_the_one_before_newest_first():
    body = chat(
        user("Sort a list of names in Python please."), {"role": "assistant", "content": "ok"}, user("in Rust?")
    )
    found = read(body)
    assert found.text == "in Rust?\nSort a list of names in Python please."
    assert (found.request.asked, found.request.follow_up) == (8, True)


def test_a_turn_that_stands_for_itself_is_read_alone():
    long = "Please translate the following sentence into French for me."
    assert read(chat(user("Sort a list in Python."), user(long))).text == long


def test_a_long_turn_keeps_head_and_tail_and_says_it_was_cut():
    question = "HEAD " + "filler " * 20_000 + "What is the capital of Peru?"
    found = read(chat(user(question)))
    assert found.text.startswith("HEAD")
    assert found.text.endswith("What is the capital of Peru?")
    assert len(found.text) <= 2 * WINDOW + 1
    assert found.cut
    assert found.request.asked <= 2 * WINDOW + 1


def test_escapes_at_the_cuts_do_no_harm():
    question = "\u00e9\n\U0001f600" * 60_000 + " end?"
    for ascii_ in (True, False):
        found = read(json.dumps(chat(user(question)), ensure_ascii=ascii_).encode())
        assert found.text.endswith("end?")
        assert found.cut


def test_base64_is_never_embedded():
    inline = "Describe this: data:image/png;base64," + "iVBORw0KGgo" * 100
    assert read(chat(user(inline))).text == "Describe this:"
    assert read(chat(user("A" * 100_000))).text == ""


@pytest.mark.parametrize(
    ("part", "modality"),
    [
        ({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}, "image+text"),
        ({"type": "image", "source": {"type": "base64", "data": "AAAA"}}, "image+text"),
        ({"type": "input_image", "image_url": "x"}, "image+text"),
        ({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}, "audio+text"),
        ({"type": "text", "text": '"type": "image_url"'}, "text"),
    ],
)
def test_the_modality_is_seen(part, modality):
    found = read(chat(user([{"type": "text", "text": "what is it"}, part])))
    assert found.request.modality == modality
    assert found.text.startswith("what is it")


def test_pictures_do_not_count_as_prompt_tokens():
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 400_000}}
    assert read(chat(user([{"type": "text", "text": "what"}, picture]))).request.prompt_tokens < 100
    assert read(chat(user("word " * 4000))).request.prompt_tokens > 4000
    assert read({"model": "m", "prompt": [1, 2, 3]}, "/v1/completions").request.prompt_tokens == 3


def test_the_other_fields():
    found = read(chat(user("x"), stream=True, max_completion_tokens=7, max_tokens=9, user="alice"))
    assert (found.request.stream, found.request.max_tokens, found.user) == (True, 7, "alice")
    assert read(chat(user("x"), max_tokens=9.5, user=3, stream="yes")).request.max_tokens is None
    assert read(chat(user("x"), metadata={"user_id": "bob"}), "/v1/messages").user == "bob"


def test_auto_is_found_where_it_stands_byte_for_byte():
    body = b'{ "x": {"model": "auto"}, "mod\\u0065l" :\t"au\\u0074o" , "messages": [] }'
    found = read(body)
    assert found.request.auto
    assert found.model_span is not None
    start, end = found.model_span
    assert body[start:end] == b'"au\\u0074o"'


def test_of_two_models_the_last_counts_as_in_the_backend():
    found = read(b'{"model": "auto", "messages": [], "model": "b"}')
    assert (found.request.model, found.request.auto, found.model_span) == ("b", False, None)


def test_auto_is_a_name_like_any_where_the_body_cannot_change():
    found = read(chat(user("x"), model="auto"), rewritable=False)
    assert (found.request.model, found.request.auto) == ("auto", False)


MALFORMED = [
    b"", b" ", b"[]", b'"x"', b"123", b"null", b"{", b'{"messages": [', b"\xff\xfe{", b"{'a': 1}", b'{"a":' * 100_000,
    b'{"a": 1} trailing', b"[" * 100_000, b'{"a": "\n"', b"\x00",
]  # fmt: skip


@pytest.mark.parametrize("body", MALFORMED)
def test_what_is_not_a_json_object_is_malformed_and_raises_nothing(body):
    found = read(body)
    assert found.malformed
    assert (found.text, found.request.model) == ("", None)


ODD = [
    {}, chat(), {"messages": {}}, {"messages": "x"}, {"messages": [None, 3, [], "x", {}]}, chat(user(None)),
    chat(user(3)),     chat(user([None, 3, {"text": 3}, {"type": "text"}])), chat({"role": 3, "content": "x"}),
    {"model": 3, "messages": []},     chat(user({"text": "x"})), {"model": None}, {"prompt": {}}, {"input": [[]]},
]  # fmt: skip


@pytest.mark.parametrize("body", ODD)
@pytest.mark.parametrize("path", sorted(JSON))
def test_odd_shapes_are_read_as_far_as_they_go(body, path):
    found = read(body, path)
    assert not found.malformed
    assert found.text == ""


def test_one_odd_message_does_not_hide_the_others():
    assert read(chat(None, user("What is the tallest mountain?"), 3)).text == "What is the tallest mountain?"


@pytest.mark.parametrize("number", [b"NaN", b"Infinity", b"-Infinity", b"1e999"])
def test_numbers_python_reads_and_json_forbids_do_not_hide_the_question(number):
    found = read(b'{"model": "m", "temperature": ' + number + b', "messages": [{"role": "user", "content": "hello"}]}')
    assert (found.request.model, found.text, found.malformed) == ("m", "hello", False)


@pytest.mark.parametrize("bad", [rb"\ud83d", rb"\ude00", rb"\ude00\ud83d"])
def test_an_unpaired_surrogate_is_replaced_for_reading(bad):
    found = read(b'{"model": "m", "messages": [{"role": "user", "content": "hello ' + bad + b' you"}]}')
    assert found.text.startswith("hello ")
    assert found.text.endswith(" you")
    found.text.encode()


def test_hints_are_read_and_what_is_no_hint_is_counted():
    found = read(chat(), x_route_hint="zone=a, Region = b ;require, color=blue, node=, avoid=c;require;x, =, ;")
    assert found.request.hints == (Hint("zone", "a"), Hint("region", "b", True), Hint("avoid", "c", True))
    assert found.ignored_hints == 4
    many = read(chat(), x_route_hint=",".join(["zone=a"] * 1000))
    assert len(many.request.hints) == hints.MOST


def test_a_context_version_is_a_number_or_nothing():
    assert read(chat(), x_context_version="12").request.context_version == 12
    for odd in ("", "-1", "1.5", "x", "9" * 40, "²", "NaN", "Infinity", "-Infinity", "1e999"):
        assert read(chat(), x_context_version=odd).request.context_version is None


def test_a_very_large_prompt_costs_no_more_text_than_a_small_one():
    for content in ("a" * 1_000_000, "一" * 1_000_000, "x y " * 4_000_000):
        assert len(read(chat(user(content))).text) <= 2 * WINDOW + 1


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)
_names = st.sampled_from(["model", "messages", "prompt", "input", "stream", "max_tokens", "user", "metadata", "role"])


@given(body=st.dictionaries(_names, _json, max_size=6), path=st.sampled_from(sorted(JSON)))
def test_no_json_raises(body, path):
    assert not read(json.dumps(body).encode(), path).malformed


@given(st.binary(max_size=300), st.text(max_size=100))
def test_no_bytes_and_no_hint_raise(body, hint):
    read(body, x_route_hint=hint)


@given(
    before=st.dictionaries(st.text(max_size=5), _json, max_size=3),
    after=st.dictionaries(st.text(max_size=5), _json, max_size=3),
    model=st.text(min_size=1, max_size=30),
    indent=st.none() | st.integers(0, 3),
)
def test_splicing_changes_the_model_and_not_a_byte_else(before, after, model, indent):
    plain = {**before, "model": "auto", **{k: v for k, v in after.items() if k != "model"}}
    body = (
        json.dumps(plain, indent=indent, allow_nan=False, default=str)
        if _finite(plain)
        else json.dumps({"model": "auto"})
    )
    raw = body.encode("utf-8", "replace")
    found = read(raw)
    start, end = found.model_span
    assert raw[start:end] == b'"auto"'
    assert json.loads(found.with_model(raw, model)) == {**json.loads(raw), "model": model}


def _finite(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        return False
    return True


LARGE = 4 * 1024 * 1024


def crowd(before: bytes, one: bytes, after: bytes) -> bytes:
    return before + b",".join([one] * (LARGE // (len(one) + 1))) + after


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/embeddings", crowd(b'{"input":[', b"1", b"]}")),
        ("/v1/embeddings", crowd(b'{"input":[', b'"a"', b"]}")),
        ("/v1/chat/completions", crowd(b'{"messages":[', b"{}", b"]}")),
        ("/v1/chat/completions", crowd(b'{"messages":[', b"1", b"]}")),
        ("/v1/chat/completions", crowd(b'{"messages":[', b'{"role":"user","content":""}', b"]}")),
        ("/v1/chat/completions", crowd(b'{"messages":[{"role":"user","content":[', b"{}", b"]}]}")),
        ("/v1/chat/completions", crowd(b'{"messages":[', b'{"role":"user","content":[{},1]}', b"]}")),
        ("/v1/chat/completions", crowd(b'{"messages":[{"role":"user","content":["x",', b"[1]", b"]}]}")),
        ("/v1/chat/completions", json.dumps(chat(user([{"text": f"{'A' * 255}:" * 90}] * 180))).encode()),
    ],
    ids=["ids", "strings", "objects", "numbers", "turns", "parts", "mixed turns", "mixed parts", "almost base64"],
)
def test_no_body_holds_up_the_others(path: str, body: bytes) -> None:
    """Each took between half a second and eight, with hundreds of megabytes, when its lists were decoded whole."""
    began = time.process_time()
    assert not read(body, path).malformed
    assert time.process_time() - began < 0.3


def test_a_question_behind_many_pictures_is_read() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    said = read(chat(user([*[picture] * 300, {"type": "text", "text": "what do these show?"}])))
    assert said.text == "what do these show?"
    assert said.request.modality == "image+text"


def test_a_long_conversation_with_large_tool_results_is_read() -> None:
    rows = json.dumps([{"id": i, "name": "x"} for i in range(20_000)])
    assert read(chat(user("first"), {"role": "tool", "content": rows}, user("and " * 20))).text == ("and " * 20).strip()
