"""A gateway's subset hint, over real gRPC and through the real router: what it says is what may answer."""

import envoy_data_plane.envoy.config.core.v3 as core
import pytest
from envoy_data_plane.envoy.service.ext_proc import v3
from envoy_data_plane.google.protobuf import Struct
from hypothesis import given
from hypothesis import strategies as st

from ext_proc import config, names, subset
from ext_proc.protocol import Mode
from policy.rules import Rules
from policy.types import Node
from tests.ext_proc.replay import TRAILERS, body, head, replay
from tests.ext_proc.test_router import World

ONE, TWO, SIX = "10.0.0.1:8000", "10.0.0.2:8000", "[fd00::1]:8000"
CHAT = b'{"model": "m", "messages": [{"role": "user", "content": "hi"}]}'


def hinted(message: v3.ProcessingRequest, value: object) -> v3.ProcessingRequest:
    space = {names.SUBSET_METADATA: Struct.from_dict({names.SUBSET: value})}
    message.metadata_context = core.Metadata(filter_metadata=space)
    return message


def router(**server: object):
    """Round robin over three nodes, so that only the hint makes one of them stay."""
    settings = config.Config(server=config.Server(**server), rules=Rules(strategy="round_robin"))
    return World(*(Node(address=address) for address in (ONE, TWO, SIX)), settings=settings).router


async def outcome(client, *messages: v3.ProcessingRequest) -> str | int:
    """The node in header and metadata, which must be the same, or the status of a refusal."""
    answers = await client.play(*messages)
    for answer in answers:
        if answer.immediate_response is not None:
            assert b'"error"' in answer.immediate_response.body
            return answer.immediate_response.status.code
    told = next(a for a in answers if a.dynamic_metadata is not None)
    part = told.request_headers or told.request_body
    lines = {line.header.key: line.header.raw_value for line in part.response.header_mutation.set_headers}
    node = told.dynamic_metadata.to_dict()["envoy.lb"][names.ENDPOINT]
    assert lines[names.ENDPOINT].decode() == node
    return node


@pytest.mark.parametrize("mode", [Mode.FULL_DUPLEX, Mode.BUFFERED])
@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ([TWO], TWO),
        (TWO, TWO),
        ([f"{TWO},10.9.9.9:1"], TWO),
        (f" ,{TWO} ,, 10.9.9.9:8000", TWO),
        (["10.0.0.2"], TWO),
        ([SIX], SIX),
        (["[FD00:0:0:0::0001]:8000"], SIX),
        (["fd00::1"], SIX),
        (["[fd00::1]"], SIX),
        ([], 503),
        ("", 503),
        (["10.9.9.9:8000"], 503),
        (["10.0.0.2:9999"], 503),
        ([7.0], 503),
    ],
)
async def test_a_hint_restricts_whether_it_comes_with_the_headers_or_with_the_body(mode, value, expected):
    async with replay(router()) as client:
        for _ in range(3):
            with_headers = hinted(head(mode=mode), value), body(CHAT, ends=True)
            assert await outcome(client, *with_headers) == expected
            with_body = head(mode=mode), hinted(body(CHAT, ends=True), value)
            assert await outcome(client, *with_body) == expected


async def test_it_holds_for_requests_without_a_body_and_with_trailers():
    async with replay(router()) as client:
        for _ in range(3):
            assert await outcome(client, hinted(head(ends=True), [TWO])) == TWO
            assert await outcome(client, hinted(head(mode=Mode.NONE), [TWO])) == TWO
            assert await outcome(client, hinted(head(), [TWO]), body(CHAT), TRAILERS) == TWO


async def test_without_a_hint_all_nodes_may_answer():
    async with replay(router()) as client:
        seen = {await outcome(client, head(), body(CHAT, ends=True)) for _ in range(3)}
        assert seen == {ONE, TWO, SIX}
        seen = {await outcome(client, hinted(head(), None), body(CHAT, ends=True)) for _ in range(3)}
        assert seen == {ONE, TWO, SIX}


async def test_the_header_form_is_a_clients_word_unless_the_gateway_is_said_to_set_it():
    said = {names.SUBSET.replace("-", "_"): f"{TWO}, 10.9.9.9:8000"}
    async with replay(router()) as client:
        seen = {await outcome(client, head(**said), body(CHAT, ends=True)) for _ in range(3)}
        assert seen == {ONE, TWO, SIX}
    async with replay(router(subset_header=True)) as client:
        for _ in range(3):
            assert await outcome(client, head(**said), body(CHAT, ends=True)) == TWO
            assert await outcome(client, hinted(head(**said), [ONE]), body(CHAT, ends=True)) == ONE
        nobody = dict.fromkeys(said, "")
        assert await outcome(client, head(**nobody), body(CHAT, ends=True)) == 503


@given(st.lists(st.text(max_size=80), max_size=20))
def test_no_text_makes_it_raise_and_an_entry_is_never_two(texts: list[str]):
    found = subset.listed(texts)
    assert all(entry and entry == entry.strip() and "," not in entry for entry in found)
    assert len(found) <= sum(text.count(",") + 1 for text in texts)


@pytest.mark.parametrize("odd", ["[::1", "::1]", "[fe80::1%eth0]:1", "1:2:3", "[x]:1:2", ":" * 9000])
def test_what_is_no_address_stays_as_it_is(odd: str):
    assert subset.listed([odd]) == (odd,)
