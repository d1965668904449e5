"""Protobuf both ways, checked by envoy-data-plane's own decoder."""

import contextlib

import envoy_data_plane.envoy.config.core.v3 as core
import msgspec
import pytest
from envoy_data_plane.envoy.service.ext_proc import v3
from envoy_data_plane.google.protobuf import Struct
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from ext_proc import names, wire
from ext_proc.protocol import (
    Body,
    Chunk,
    Decide,
    Headers,
    Mode,
    Pass,
    Phase,
    Refuse,
    ResponseBody,
    ResponseHeaders,
    ResponseTrailers,
    Route,
    Trailers,
    Undecided,
)


def decoded(command) -> v3.ProcessingResponse:
    """What an independent reader finds in our bytes; nothing unknown may be left over."""
    message = wire.response(command)
    out = v3.ProcessingResponse.parse(message)
    assert bytes(out) == message
    return out


def head(*pairs: tuple[str, bytes], **fields) -> v3.ProcessingRequest:
    headers = core.HeaderMap(headers=[core.HeaderValue(key=k, raw_value=v) for k, v in pairs])
    return v3.ProcessingRequest(request_headers=v3.HttpHeaders(headers=headers, **fields))


def test_request_headers_become_one_value_a_name():
    request = head(
        (":path", b"/x"), ("x-forwarded-for", b"1.1.1.1"), ("cookie", b"a=1"), ("x-forwarded-for", b"2.2.2.2"),
        ("Cookie", b"b=2"), ("x-odd", b"\xff\x00"), end_of_stream=True,
    )  # fmt: skip
    event = wire.event(bytes(request))
    one_value = {":path": "/x", "x-forwarded-for": "1.1.1.1, 2.2.2.2", "cookie": "a=1; b=2", "x-odd": "\xff\x00"}
    assert event == Headers(one_value, ends=True, lines=6, size=76)


def test_a_value_in_the_old_field_is_read_too():
    headers = core.HeaderMap(headers=[core.HeaderValue(key="a", value="b")])
    event = wire.event(bytes(v3.ProcessingRequest(request_headers=v3.HttpHeaders(headers=headers))))
    assert isinstance(event, Headers)
    assert event.headers == {"a": "b"}


@pytest.mark.parametrize("mode", list(Mode))
def test_the_body_mode_is_read_also_when_it_is_none_and_the_message_empty(mode):
    request = head((":path", b"/"))
    request.protocol_config = v3.ProtocolConfiguration(request_body_mode=mode.value)
    event = wire.event(bytes(request))
    assert isinstance(event, Headers)
    assert event.modes == (mode, Mode.NONE)


def test_a_mode_of_a_later_envoy_is_no_mode():
    request = head((":path", b"/"))
    raw = bytes(request) + b"\x5a\x02\x08\x63"  # protocol_config { request_body_mode: 99 }
    event = wire.event(raw)
    assert isinstance(event, Headers)
    assert event.modes == (Mode.NONE, Mode.NONE)


def test_attributes_of_the_calling_proxy_are_read():
    request = head((":path", b"/"))
    request.attributes = {"envoy.filters.http.ext_proc": Struct.from_dict({names.LOCALITY_REGION: "eu", "n": 3.0})}
    event = wire.event(bytes(request))
    assert isinstance(event, Headers)
    assert event.attributes == {names.LOCALITY_REGION: "eu"}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (["a:1", "b:2"], ("a:1", "b:2")),
        (["a:1,b:2"], ("a:1", "b:2")),
        ("a:1, ,b:2", ("a:1", "b:2")),
        ([], ()),
        ("", ()),
        ([1.0, "a:1", None, {}], ("a:1",)),
        (7.0, ()),
        (True, ()),
        ({"a:1": "b:2"}, ()),
        (None, None),
    ],
)
def test_subset_hints_come_as_a_list_or_as_one_string(value, expected):
    """Anything else allows nobody: a restriction we cannot read is none we may lift. Null is not there."""
    for request in (head((":path", b"/")), v3.ProcessingRequest(request_body=v3.HttpBody(body=b"{}"))):
        request.metadata_context = core.Metadata(
            filter_metadata={names.SUBSET_METADATA: Struct.from_dict({names.SUBSET: value})}
        )
        event = wire.event(bytes(request))
        assert isinstance(event, Headers | Body)
        assert event.subset == expected


def test_a_subset_namespace_without_the_key_restricts_nothing():
    request = head((":path", b"/"))
    request.metadata_context = core.Metadata(filter_metadata={names.SUBSET_METADATA: Struct.from_dict({"x": "y"})})
    event = wire.event(bytes(request))
    assert isinstance(event, Headers)
    assert event.subset is None


def test_the_other_messages():
    for request, event in (
        (v3.ProcessingRequest(request_body=v3.HttpBody(body=b"x", end_of_stream=True)), Body(b"x", True)),
        (v3.ProcessingRequest(request_trailers=v3.HttpTrailers()), Trailers()),
        (v3.ProcessingRequest(response_headers=v3.HttpHeaders()), ResponseHeaders()),
        (v3.ProcessingRequest(response_body=v3.HttpBody(body=b"x")), ResponseBody(b"x", False)),
        (v3.ProcessingRequest(response_trailers=v3.HttpTrailers()), ResponseTrailers()),
        (v3.ProcessingRequest(), None),
    ):
        assert wire.event(bytes(request)) == event


@given(st.binary(max_size=200))
def test_noise_is_an_event_or_a_decode_error(noise):
    with contextlib.suppress(DecodeError):
        wire.event(noise)


@pytest.mark.parametrize("phase", [Phase.REQUEST_HEADERS, Phase.REQUEST_BODY])
def test_a_route_says_the_node_in_header_and_metadata_alike(phase):
    route = Route(node="[::1]:80", headers={names.ENDPOINT: "[::1]:80", "x-a": "ü"}, remove=("x-b",), phase=phase)
    out = decoded(route)
    answer = (out.request_headers if phase is Phase.REQUEST_HEADERS else out.request_body).response
    assert answer.clear_route_cache
    assert answer.body_mutation is None
    options = answer.header_mutation.set_headers
    assert {o.header.key: o.header.raw_value for o in options} == {names.ENDPOINT: b"[::1]:80", "x-a": b"\xfc"}
    assert {int(o.append_action) for o in options} == {2}
    assert all(o.header.value == "" for o in options)
    assert answer.header_mutation.remove_headers == ["x-b"]
    assert out.dynamic_metadata.to_dict() == {names.LB_METADATA: {names.ENDPOINT: "[::1]:80"}}


def test_a_changed_body_carries_its_length_in_the_same_answer():
    answer = decoded(Route(node="n", headers={}, body=b"abcd", phase=Phase.REQUEST_BODY)).request_body.response
    assert answer.body_mutation.body == b"abcd"
    assert [(o.header.key, o.header.raw_value) for o in answer.header_mutation.set_headers] == [
        ("content-length", b"4")
    ]


def test_in_duplex_the_headers_answer_has_no_body():
    answer = decoded(Route(node="n", headers={}, body=b"abcd", phase=Phase.REQUEST_HEADERS)).request_headers.response
    assert answer.body_mutation is None
    assert answer.header_mutation.set_headers == []


@pytest.mark.parametrize("phase", list(Phase))
def test_a_pass_is_the_empty_answer_of_its_phase(phase):
    out = decoded(Pass(phase))
    assert getattr(out, phase.name.lower()) is not None
    assert out.dynamic_metadata is None


@pytest.mark.parametrize("phase", [Phase.REQUEST_BODY, Phase.RESPONSE_BODY])
@pytest.mark.parametrize(("data", "ends"), [(b"", True), (b"", False), (b"x" * 62_000, False)])
def test_a_chunk_is_a_streamed_response_even_when_empty(phase, data, ends):
    out = decoded(Chunk(phase, data, ends))
    piece = getattr(out, phase.name.lower()).response.body_mutation.streamed_response
    assert (piece.body, piece.end_of_stream) == (data, ends)


def test_undecided_takes_our_headers_away_and_nothing_else():
    out = decoded(Undecided(names.OURS))
    assert out.request_headers.response.header_mutation.remove_headers == list(names.OURS)
    assert not out.request_headers.response.clear_route_cache


def test_a_refusal_is_json_in_openais_shape():
    out = decoded(Refuse(status=404, message='no "x"', reason="unknown-model", param="model", headers={"a": "b"}))
    reply = out.immediate_response
    assert int(reply.status.code) == 404
    assert reply.details == "isogloss_unknown-model"
    headers = {o.header.key: o.header.raw_value for o in reply.headers.set_headers}
    assert headers == {"content-type": b"application/json", "a": b"b"}
    error = {"message": 'no "x"', "type": "NotFoundError", "param": "model", "code": 404}
    assert msgspec.json.decode(reply.body) == {"error": error}


def test_a_question_is_no_answer():
    with pytest.raises(TypeError):
        wire.response(Decide({}, {}, None, None, rewritable=False))
