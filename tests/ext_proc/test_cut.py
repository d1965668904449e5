"""A body that breaks off is read as far as it goes, and half a name is none."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ext_proc import parse
from ext_proc.parse import Parsed
from ext_proc.protocol import Decide

HEADERS = {":method": "POST", ":path": "/v1/chat/completions"}
QUESTION = "Wie groß ist der Abstand zwischen Erde und Mond? \U0001f319"
ORDERS = {
    "model first": {"model": "llama-3", "user": "anna", "messages": [{"role": "user", "content": QUESTION}]},
    "model last": {"messages": [{"role": "user", "content": QUESTION}], "user": "anna", "model": "llama-3"},
}


def read(body: bytes, *, cut: bool = True) -> Parsed:
    asked = Decide(HEADERS, {}, None, body, False, cut)
    return parse.read(asked, turn=1, auto_model="auto", window=512)


@pytest.mark.parametrize("order", ORDERS)
@given(where=st.integers(0, 200), escaped=st.booleans())
def test_whatever_the_cut_names_are_whole_or_absent_and_text_is_a_beginning(order, where, escaped):
    whole = json.dumps(ORDERS[order], ensure_ascii=escaped).encode()
    parsed = read(whole[:where])
    assert parsed.request.model in (None, "llama-3")
    assert parsed.user in (None, "anna")
    # An escaped pair that is cut in two, or a character cut inside, is dropped or replaced; no more than that.
    assert QUESTION.startswith(parsed.text.rstrip("\ufffd "))


def test_a_cut_behind_the_names_keeps_them():
    body = json.dumps(ORDERS["model first"], ensure_ascii=False).encode()
    parsed = read(body[:-20])
    assert (parsed.request.model, parsed.user) == ("llama-3", "anna")
    assert len(parsed.text) > 20


def test_trailers_make_a_whole_body_look_cut_and_it_is_read_all_the_same():
    body = json.dumps(ORDERS["model first"]).encode()
    assert read(body).text == read(body, cut=False).text


@pytest.mark.parametrize(
    "body", [b"", b"no json", b"[" * 100_000, b'{"a":' * 50_000, b'"text"', b"{", b"\xff\xfe{", b"7"]
)
def test_what_is_no_beginning_of_an_object_says_nothing(body):
    parsed = read(body)
    assert (parsed.text, parsed.request.model) == ("", None)
