"""The exchange: any order and any split of messages Envoy may send."""

import itertools
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from ext_proc import names
from ext_proc.protocol import (
    CHUNK_BYTES,
    MAX_HEADER_BYTES,
    MAX_HEADERS,
    Answer,
    Body,
    Chunk,
    Command,
    Decide,
    Event,
    Exchange,
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

DUPLEX = (Mode.FULL_DUPLEX, Mode.FULL_DUPLEX)
BUFFERED = (Mode.BUFFERED, Mode.NONE)
NONE = (Mode.NONE, Mode.NONE)
STREAMED = (Mode.STREAMED, Mode.NONE)
POST = {":method": "POST", ":path": "/v1/chat/completions"}
ROUTE = Route(node="10.0.0.1:8000", headers={"a": "b"})
ONCE = Route(node="10.0.0.1:8000", headers={"a": "b", names.TRAILERS: "true"})


UPLOAD = {":method": "POST", ":path": "/v1/files"}


def reads(headers: Mapping[str, str]) -> bool:
    return headers is not UPLOAD and headers.get(":path") != UPLOAD[":path"]


def say(*events: Event, answer: Answer = ROUTE, limit: int = 1_000_000) -> list[Command]:
    """All commands for these events, each Decide answered with *answer*."""
    exchange = Exchange(limit, reads)
    out: list[Command] = []
    for event in events:
        for command in exchange.feed(event):
            out.append(command)
            if isinstance(command, Decide):
                out += exchange.answer(answer)
    return out


def at(phase: Phase, route: Route = ROUTE) -> Route:
    return Route(node=route.node, headers=route.headers, body=route.body, phase=phase)


def asked(commands: list[Command]) -> list[bytes | None]:
    return [command.body for command in commands if isinstance(command, Decide)]


def sent(commands: list[Command]) -> list[Command]:
    return [command for command in commands if not isinstance(command, Decide)]


def split(body: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(cut % (len(body) + 1) for cut in cuts), len(body)]
    return [body[a:b] for a, b in itertools.pairwise(edges)]


def test_a_request_without_a_body_is_decided_at_its_headers_in_every_mode():
    for modes in (DUPLEX, BUFFERED, NONE, None):
        commands = say(Headers(POST, ends=True, modes=modes))
        assert asked(commands) == [b""]
        assert sent(commands) == [at(Phase.REQUEST_HEADERS)]


def test_without_a_body_mode_the_headers_decide_and_the_body_is_not_ours():
    commands = say(Headers(POST, modes=NONE))
    assert commands == [Decide(POST, {}, None, None, rewritable=False), at(Phase.REQUEST_HEADERS)]


def test_buffered_answers_headers_at_once_and_decides_with_the_body():
    commands = say(Headers(POST, modes=BUFFERED), Body(b"abc", ends=True))
    assert commands == [
        Pass(Phase.REQUEST_HEADERS),
        Decide(POST, {}, None, b"abc", rewritable=True),
        at(Phase.REQUEST_BODY),
    ]


def test_buffered_with_trailers_decides_on_the_body_though_nothing_ends():
    commands = say(Headers(POST, modes=BUFFERED), Body(b"abc"), Trailers())
    assert asked(commands) == [b"abc"]
    assert sent(commands) == [Pass(Phase.REQUEST_HEADERS), at(Phase.REQUEST_BODY), Pass(Phase.REQUEST_TRAILERS)]


def test_buffered_partial_is_as_buffered_while_the_body_is_whole_and_only_read_when_it_is_cut():
    for ends in (True, False):
        commands = say(Headers(POST, modes=(Mode.BUFFERED_PARTIAL, Mode.NONE)), Body(b"ab", ends=ends))
        assert sent(commands) == [Pass(Phase.REQUEST_HEADERS), at(Phase.REQUEST_BODY)]
        assert [(c.body, c.rewritable, c.cut) for c in commands if isinstance(c, Decide)] == [(b"ab", ends, not ends)]


def test_streamed_decides_at_the_headers_and_lets_pieces_pass():
    commands = say(Headers(POST, modes=STREAMED), Body(b"a"), Body(b"bc", ends=True))
    assert asked(commands) == [None]
    assert sent(commands) == [at(Phase.REQUEST_HEADERS), Pass(Phase.REQUEST_BODY), Pass(Phase.REQUEST_BODY)]


def test_a_streamed_body_that_is_one_piece_betters_the_decision_of_its_headers():
    commands = say(Headers(POST, modes=STREAMED), Body(b"abc", ends=True))
    first, second = (c for c in commands if isinstance(c, Decide))
    assert (first.body, first.instead_of) == (None, None)
    assert (second.body, second.instead_of, second.rewritable) == (b"abc", ROUTE.node, False)
    assert sent(commands) == [at(Phase.REQUEST_HEADERS), at(Phase.REQUEST_BODY)]


def test_a_body_nobody_reads_is_decided_at_the_headers_and_not_asked_for():
    for modes in (DUPLEX, BUFFERED, STREAMED, (Mode.BUFFERED_PARTIAL, Mode.NONE)):
        commands = say(Headers({**UPLOAD, "content-length": "99"}, modes=modes), limit=10)
        assert asked(commands) == [None]
        assert sent(commands) == [structs.replace(ROUTE, unread=True)]


def test_a_body_nobody_reads_is_let_through_where_it_comes_all_the_same():
    pieces = [Body(b"a" * 70_000), Body(b"b", ends=True), Body(b"c", ends=True)]
    assert sent(say(Headers(UPLOAD, modes=BUFFERED), pieces[1]))[1:] == [Pass(Phase.REQUEST_BODY)]
    assert sent(say(Headers(UPLOAD, modes=DUPLEX), *pieces, limit=10))[1:] == [
        Chunk(Phase.REQUEST_BODY, b"a" * CHUNK_BYTES, ends=False),
        Chunk(Phase.REQUEST_BODY, b"a" * (70_000 - CHUNK_BYTES), ends=False),
        Chunk(Phase.REQUEST_BODY, b"b", ends=True),
    ]


def test_who_only_watches_is_asked_nothing_and_told_everything():
    for modes in (NONE, STREAMED, BUFFERED):
        head = Headers(POST, modes=modes, observing=True)
        commands = say(head, Body(b"ab"), Body(b"c", ends=True), ResponseHeaders(), ResponseBody(b"x", ends=True))
        assert sent(commands) == []
        assert asked(commands) == [None if modes is NONE else b"abc"]
        assert all(c.observing for c in commands if isinstance(c, Decide))
    assert asked(say(Headers(POST, modes=STREAMED, observing=True), Body(b"abc"), Trailers())) == [b"abc"]
    large = say(Headers(POST, modes=STREAMED, observing=True), Body(b"abc"), Body(b"d" * 99, ends=True), limit=2)
    assert [(c.body, c.cut) for c in large if isinstance(c, Decide)] == [(b"abc", True)]


def test_the_decision_waits_for_the_whole_body_in_duplex():
    assert say(Headers(POST, modes=DUPLEX), Body(b"ab")) == []
    commands = say(Headers(POST, modes=DUPLEX), Body(b"ab"), Body(b"c", ends=True))
    assert commands == [
        Decide(POST, {}, None, b"abc", rewritable=True),
        at(Phase.REQUEST_HEADERS),
        Chunk(Phase.REQUEST_BODY, b"abc", ends=True),
    ]


def test_a_gateway_that_says_no_mode_is_taken_for_duplex():
    assert asked(say(Headers(POST), Body(b"x", ends=True))) == [b"x"]


def test_an_empty_end_of_stream_completes_the_body():
    commands = say(Headers(POST, modes=DUPLEX), Body(b"abc"), Body(b"", ends=True))
    assert sent(commands)[1:] == [Chunk(Phase.REQUEST_BODY, b"abc", ends=True)]


def test_an_empty_duplex_body_is_answered_with_one_empty_last_chunk():
    commands = say(Headers(POST, modes=DUPLEX), Body(b"", ends=True))
    assert sent(commands)[1:] == [Chunk(Phase.REQUEST_BODY, b"", ends=True)]


def test_trailers_complete_a_duplex_body_and_no_chunk_says_it_ends():
    commands = say(Headers(POST, modes=DUPLEX), Body(b"abc"), Trailers())
    assert asked(commands) == [b"abc"]
    assert sent(commands) == [
        at(Phase.REQUEST_HEADERS, ONCE),
        Chunk(Phase.REQUEST_BODY, b"abc", ends=False),
        Pass(Phase.REQUEST_TRAILERS),
    ]


def test_trailers_without_a_body_get_no_chunk():
    commands = say(Headers(POST, modes=DUPLEX), Trailers())
    assert sent(commands) == [at(Phase.REQUEST_HEADERS, ONCE), Pass(Phase.REQUEST_TRAILERS)]


def test_a_route_without_retries_is_not_unmarked_again():
    answer = Route(node="10.0.0.1:8000", headers={}, remove=(names.NOTICE, names.TRAILERS))
    route = sent(say(Headers(POST, modes=DUPLEX), Trailers(), answer=answer))[0]
    assert isinstance(route, Route)
    assert route.remove == (names.NOTICE,)


def test_a_second_end_of_stream_is_ignored_in_duplex():
    commands = say(Headers(POST, modes=DUPLEX), Body(b"abc", ends=True), Body(b"rest", ends=True), Body(b"", ends=True))
    assert asked(commands) == [b"abc"]
    assert len(sent(commands)) == 2


def test_a_duplex_body_without_headers_is_handed_on():
    assert say(Body(b"abc", ends=True)) == [Chunk(Phase.REQUEST_BODY, b"abc", ends=True)]


def test_more_headers_than_leave_room_for_ours_are_refused():
    for modes in (DUPLEX, BUFFERED, NONE):
        for many in ({"lines": MAX_HEADERS + 1}, {"size": MAX_HEADER_BYTES + 1}):
            (refused,) = say(Headers(POST, modes=modes, **many), Body(b"abc", ends=True))[:1]
            assert isinstance(refused, Refuse)
            assert refused.status == 431
        assert asked(say(Headers(POST, ends=True, modes=modes, lines=MAX_HEADERS, size=MAX_HEADER_BYTES)))


def test_a_declared_length_over_the_limit_is_refused_at_the_headers():
    for modes in (DUPLEX, BUFFERED, NONE):
        commands = say(Headers({**POST, "content-length": "11"}, modes=modes), limit=10)
        assert [c.status for c in commands if isinstance(c, Refuse)] == [413]
        assert not say(Headers({**POST, "content-length": "10"}, modes=DUPLEX), limit=10)


def test_an_undeclared_body_over_the_limit_is_refused_when_it_passes_it_and_once():
    commands = say(Headers(POST, modes=DUPLEX), Body(b"x" * 10), Body(b"x"), Body(b"x", ends=True), limit=10)
    assert [type(c) for c in commands] == [Refuse]


def test_where_nobody_holds_the_whole_body_none_is_too_large():
    for modes in (STREAMED, (Mode.BUFFERED_PARTIAL, Mode.NONE)):
        commands = say(Headers({**POST, "content-length": "11"}, modes=modes), Body(b"x" * 11), limit=10)
        assert not [c for c in commands if isinstance(c, Refuse)]


def test_a_hostile_content_length_is_no_number():
    for value in ("-1", "1e9", "²", "9" * 400, "", "0x10"):
        commands = say(Headers({**POST, "content-length": value}, modes=BUFFERED), limit=10)
        assert len(commands) == 1


def test_a_refusal_is_the_only_answer():
    no = Refuse(status=503, message="none", reason="no-nodes")
    assert sent(say(Headers(POST, modes=DUPLEX), Body(b"abc", ends=True), answer=no)) == [no]


def test_undecided_lets_the_body_go_on():
    commands = sent(say(Headers(POST, modes=DUPLEX), Body(b"abc", ends=True), answer=Undecided(("x",))))
    assert commands == [Undecided(("x",)), Chunk(Phase.REQUEST_BODY, b"abc", ends=True)]


def test_a_changed_body_replaces_the_clients_in_duplex_chunks():
    route = Route(node="n", headers={}, body=b"y" * (CHUNK_BYTES + 1))
    commands = sent(say(Headers(POST, modes=DUPLEX), Body(b"abc", ends=True), answer=route))
    chunks = [c for c in commands if isinstance(c, Chunk)]
    assert [len(c.data) for c in chunks] == [CHUNK_BYTES, 1]
    assert [c.ends for c in chunks] == [False, True]


def test_an_answer_may_begin_a_stream():
    """Envoy sends its own local replies through the response phase, with no request before them."""
    assert say(ResponseHeaders(), ResponseTrailers()) == [Pass(Phase.RESPONSE_HEADERS), Pass(Phase.RESPONSE_TRAILERS)]


def test_answers_pass_piece_by_piece():
    pieces = [ResponseBody(b"data: 1\n\n"), ResponseBody(b"", ends=True), ResponseBody(b"", ends=True)]
    assert sent(say(Headers(POST, ends=True, modes=DUPLEX), ResponseHeaders(), *pieces))[2:] == [
        Chunk(Phase.RESPONSE_BODY, b"data: 1\n\n", ends=False),
        Chunk(Phase.RESPONSE_BODY, b"", ends=True),
    ]
    large = say(ResponseHeaders(), ResponseBody(b"x" * (CHUNK_BYTES + 1), ends=True))
    assert [len(c.data) for c in large if isinstance(c, Chunk)] == [CHUNK_BYTES, 1]
    buffered = sent(say(Headers(POST, ends=True, modes=(Mode.NONE, Mode.BUFFERED)), *pieces))
    assert buffered[1:] == [Pass(Phase.RESPONSE_BODY)] * 3


def test_an_upload_is_only_waited_for_in_duplex():
    exchange = Exchange(10, reads)
    assert not exchange.uploading
    list(exchange.feed(Headers(POST, modes=DUPLEX)))
    assert exchange.uploading
    assert exchange.stalled().status == 408
    assert not exchange.uploading
    buffered = Exchange(10, reads)
    list(buffered.feed(Headers(POST, modes=BUFFERED)))
    assert not buffered.uploading


@given(body=st.binary(max_size=300_000), cuts=st.lists(st.integers(0, 300_000), max_size=12), trailers=st.booleans())
def test_any_split_of_any_body_gives_the_same_question_and_the_same_bytes(body, cuts, trailers):
    pieces = split(body, cuts)
    events: list[Event] = [Body(piece) for piece in pieces]
    events += [Trailers()] if trailers else [Body(b"", ends=True)]
    commands = say(Headers(POST, modes=DUPLEX), *events)
    assert asked(commands) == [body]
    chunks = [c for c in commands if isinstance(c, Chunk)]
    assert b"".join(c.data for c in chunks) == body
    assert all(len(c.data) <= CHUNK_BYTES for c in chunks)
    assert [c.ends for c in chunks].count(True) == (0 if trailers else 1)
    assert not chunks or chunks[-1].ends is not trailers


MODES = [DUPLEX, BUFFERED, STREAMED, NONE, None]
_events = st.one_of(
    st.builds(
        Headers,
        st.sampled_from([POST, UPLOAD]),
        st.booleans(),
        st.sampled_from(MODES),
    ),
    st.builds(Body, st.binary(max_size=20), st.booleans()),
    st.just(Trailers()),
    st.just(ResponseHeaders()),
    st.builds(ResponseBody, st.binary(max_size=20), st.booleans()),
    st.just(ResponseTrailers()),
)


@given(st.lists(_events, max_size=12))
def test_no_order_of_messages_raises_or_asks_again_but_for_a_streamed_body(events):
    commands = say(*events, limit=64)
    again = [command for command in commands if isinstance(command, Decide)][1:]
    assert all(decide.instead_of is not None for decide in again)
    assert len(again) <= 1
