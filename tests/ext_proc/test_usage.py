"""Usage is read as an answer passes, wherever its pieces break."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ext_proc.usage import MAX_EVENT, MAX_JSON, Usage, UsageReader

SSE = {"content-type": "text/event-stream; charset=utf-8"}
JSON = {"content-type": "application/json"}

CHAT = (
    b"".join(
        b"data: " + json.dumps(event).encode() + b"\n\n"
        for event in (
            {"choices": [{"delta": {"content": 'he said "usage"'}}]},
            {"choices": [], "usage": None},
            {
                "choices": [],
                "usage": {"prompt_tokens": 31, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 16}},
            },
        )
    )
    + b"data: [DONE]\n\n"
)
MESSAGES = (
    b'event: message_start\ndata: {"type":"message_start",'
    b'"message":{"usage":{"input_tokens":31,"output_tokens":1}}}\n\n'
    b'event: message_delta\ndata: {"type":"message_delta","delta":{},"usage":{"output_tokens":7}}\n\n'
)
RESPONSES = (
    b'event: response.completed\ndata: {"type":"response.completed","response":{"usage":{"input_tokens":31,'
    b'"output_tokens":7,"input_tokens_details":{"cached_tokens":16}}}}\n\n'
)


def read(headers: dict[str, str], *pieces: bytes) -> Usage:
    reader = UsageReader(headers)
    for i, piece in enumerate(pieces):
        reader.feed(piece, ends=i == len(pieces) - 1)
    return reader.usage


@given(cuts=st.lists(st.integers(0, len(CHAT)), max_size=8), ending=st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_any_split_and_any_line_ending_give_the_same_figures(cuts, ending):
    text = CHAT.replace(b"\n", ending)
    edges = [0, *sorted(cuts), len(text)]
    pieces = [text[a:b] for a, b in pairwise(edges)]
    assert read(SSE, *pieces) == Usage(prompt=31, completion=7, cached=16)


def test_byte_by_byte_counts_once():
    assert read(SSE, *(CHAT[i : i + 1] for i in range(len(CHAT)))) == Usage(31, 7, 16)


@pytest.mark.parametrize(("text", "cached"), [(MESSAGES, None), (RESPONSES, 16)], ids=["messages", "responses"])
def test_the_other_apis_events(text, cached):
    assert read(SSE, text) == Usage(31, 7, cached)


def test_an_answer_in_one_piece():
    text = json.dumps({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}).encode()
    assert read(JSON, text[:20], text[20:]) == Usage(3, 2)
    assert read(JSON, json.dumps({"data": [], "usage": {"prompt_tokens": 3, "total_tokens": 3}}).encode()) == Usage(3)


@pytest.mark.parametrize("text", [b"", b"[]", b"no healthy upstream", b'{"usage":{"prompt_tokens":"x"}}', b"[" * 5000])
def test_what_is_no_usage_is_none(text):
    assert read(JSON, text) == read(SSE, b"data: " + text + b"\n\n") == Usage()


def test_compressed_and_foreign_answers_are_not_read():
    assert read({**SSE, "content-encoding": "gzip"}, CHAT) == Usage()
    assert read({"content-type": "audio/mpeg"}, CHAT) == Usage()
    assert read({}, CHAT) == Usage()


def test_endless_lines_and_answers_cost_bounded_memory_and_the_next_line_is_read():
    reader = UsageReader(SSE)
    for _ in range(64):
        reader.feed(b"x" * MAX_EVENT, ends=False)
        assert len(reader._tail) <= MAX_EVENT
    reader.feed(b"\n" + CHAT, ends=True)
    assert reader.usage == Usage(31, 7, 16)
    whole = UsageReader(JSON)
    for _ in range(5):
        whole.feed(b" " * (MAX_JSON // 2), ends=False)
    assert len(whole._tail) == 0
