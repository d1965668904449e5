"""An operator's own JSON API, read by pointers."""

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ext_proc import parse
from ext_proc.parse.own import Own
from ext_proc.pointer import Pointer
from ext_proc.protocol import Decide

OWN = {"/my/api": Own("/payload/question", "/payload/model")}


def read(body: Any, path: str = "/my/api", own: dict[str, Own] = OWN) -> parse.Parsed:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    asked = Decide({":method": "POST", ":path": path}, {}, None, raw, rewritable=True)
    return parse.read(asked, turn=1, auto_model="auto", window=512, paths=own)


def payload(question: Any, model: Any = "m") -> dict[str, Any]:
    return {"question": "not this one", "payload": {"a": [1, {}], "question": question, "model": model}, "model": "no"}


@pytest.mark.parametrize(
    ("question", "text", "modality"),
    [
        ("Why?", "Why?", "text"),
        (["Why?", "How?"], "Why?", "text"),
        ([{"role": "system", "content": "Be."}, {"role": "user", "content": "Why?"}], "Why?", "text"),
        ([{"role": "user", "content": [{"text": "Why?"}, {"type": "image_url"}]}], "Why?", "image+text"),
        ({"content": "Why?"}, "Why?", "text"),
        (7, "", "text"), (None, "", "text"), ([], "", "text"), ({}, "", "text"), ([[1]], "", "text"),
    ],
)  # fmt: skip
def test_words_and_model_are_where_the_pointers_lead(question, text, modality):
    found = read(payload(question))
    request = found.request
    assert (request.api, request.model, found.text, request.modality) == ("own", "m", text, modality)


def test_a_long_text_keeps_its_ends():
    found = read(payload("HEAD " + "x y " * 100_000 + " end?"))
    assert (found.text[:4], found.text[-4:], found.cut) == ("HEAD", "end?", True)
    assert found.request.prompt_tokens > 100_000


@pytest.mark.parametrize("body", [{}, {"payload": 3}, {"payload": []}, {"payload": {"model": 3}}, {"payload": None}])
def test_where_they_lead_nowhere_nothing_is_known(body):
    found = read(body)
    assert (found.request.model, found.text, found.malformed) == (None, "", False)


def test_what_is_no_object_is_malformed():
    for body in (b"", b"[]", b'{"payload": {"question"', b'"x"'):
        assert read(body).malformed


@pytest.mark.parametrize("more", ["", ', "t": NaN', ', "\\ud83d": 1'])
def test_auto_is_spliced_where_it_stands(more):
    raw = ('{"model": "auto", "payload": {"model": {"model": "auto"}, "question": "é"' + more + "}}").encode()
    own = {"/a": Own("/payload/question", "/payload/model/model")}
    found = read(raw, "/a", own)
    assert (found.request.auto, found.text) == (True, "é")
    assert found.with_model(raw, "q") == raw.replace(b'{"model": "auto"}, "ques', b'{"model": "q"}, "ques')


def test_an_own_path_is_exact_and_comes_before_ours():
    own = {"/v1/chat/completions": Own("/q", None)}
    assert read({"q": "Why?", "model": "m"}, "/v1/chat/completions", own).text == "Why?"
    assert read({"q": "Why?", "model": "m"}, "/v1/chat/completions", own).request.model is None
    assert read({"q": "Why?"}, "/x/my/api").request.api is None
    assert read(payload("Why?"), "/my/api/?v=2").text == "Why?"


@pytest.mark.parametrize(
    ("pointer", "found"),
    [
        ("/foo", b'["bar","baz"]'), ("/foo/0", b'"bar"'), ("/foo/1", b'"baz"'), ("/", b"0"), ("/a~1b", b"1"),
        ("/c%d", b"2"),        ("/e^f", b"3"), ("/g|h", b"4"), ("/ ", b"7"), ("/m~0n", b"8"), ("/foo/2", b""),
        ("/foo/01", b""), ("/foo/bar", b""), ("/x", b""), ("/foo/0/0", b""), ("/~01", b"9"), ("/7", b"10"),
    ],
)  # fmt: skip
def test_the_examples_of_the_rfc_but_quotes_and_backslashes(pointer, found):
    raw = rb"""  {"foo":["bar","baz"],"":0,"a/b":1,"c%d":2,"e^f":3,"g|h":4,"i\\j":5," ":7,"m~n":8,"~1":9,"7":10}"""
    assert bytes(Pointer(pointer).of(memoryview(raw))) == found


_json = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["a", "b/", "~", "0", "é"]), inner),
    max_leaves=12,
)


@given(
    body=st.dictionaries(st.sampled_from(["a", "b/", "~", "0", "é"]), _json),
    steps=st.lists(st.sampled_from(["a", "b/", "~", "0", "1", "é"]), min_size=1, max_size=4),
)
def test_a_pointer_finds_what_walking_finds(body, steps):
    expected: Any = body
    for step in steps:
        if isinstance(expected, dict) and step in expected:
            expected = expected[step]
        elif isinstance(expected, list) and step.isdigit() and int(step) < len(expected):
            expected = expected[int(step)]
        else:
            expected = None
            break
    pointer = "".join("/" + step.replace("~", "~0").replace("/", "~1") for step in steps)
    found = bytes(Pointer(pointer).of(memoryview(json.dumps(body).encode())))
    assert (json.loads(found) if found else None) == expected


@pytest.mark.parametrize(
    "body",
    [
        b'{"payload":{"question":[' + b"1," * 2_000_000 + b"1]}}",
        b'{"payload":{' + b",".join(b'"%d":1' % i for i in range(200_000)) + b"}}",
        b'{"payload":{"question":[' + b"{}," * 1_000_000 + b"{}]}}",
    ],
    ids=["numbers", "keys", "objects"],
)
def test_no_body_holds_up_the_others(body):
    for own in (OWN, {"/my/api": Own("/payload/question/99", "/payload/question/0")}):
        began = time.process_time()
        assert not read(body, own=own).malformed
        assert time.process_time() - began < 0.3
