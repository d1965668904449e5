"""The service over real gRPC, with a router that can be bent."""

import asyncio
from collections import Counter
from collections.abc import Mapping

import grpc
import pytest
from envoy_data_plane.envoy.service.ext_proc import v3

from ext_proc.protocol import CHUNK_BYTES, Answer, Decide, Mode, Refuse, Route
from ext_proc.usage import Usage
from tests.ext_proc.replay import RESPONSE, TRAILERS, body, bytes_of, head, kinds, replay


class Bent:
    """Routes everything to one node, unless told otherwise."""

    def __init__(self, answer: Answer | Exception | None = None, seconds: float = 0.0) -> None:
        self.answer = answer or Route(node="10.0.0.1:8000", headers={"x-a": "b"})
        self.seconds = seconds
        self.asked: list[Decide] = []

    def reads(self, headers: Mapping[str, str]) -> bool:
        return headers.get(":path") != "/v1/files"

    def answered(self, usage: Usage) -> None:
        self.usage = usage

    async def route(self, asked: Decide) -> Answer:
        self.asked.append(asked)
        await asyncio.sleep(self.seconds)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


async def test_a_body_goes_through_unchanged_in_pieces_gateways_accept():
    data = bytes(range(256)) * 12_000  # 3 MB
    router = Bent()
    async with replay(router) as client:
        pieces = [body(data[i : i + 60_000]) for i in range(0, len(data), 60_000)]
        answers = await client.play(head(), *pieces, body(b"", ends=True))
    assert [asked.body for asked in router.asked] == [data]
    assert kinds(answers)[0] == "request_headers"
    assert set(kinds(answers)[1:]) == {"request_body"}
    assert bytes_of(answers) == data
    chunks = [a.request_body.response.body_mutation.streamed_response for a in answers[1:]]
    assert max(len(chunk.body) for chunk in chunks) <= CHUNK_BYTES
    assert [chunk.end_of_stream for chunk in chunks] == [False] * (len(chunks) - 1) + [True]


async def test_two_ends_of_stream_are_one_decision():
    router = Bent()
    async with replay(router) as client:
        answers = await client.play(head(), body(b"abc", ends=True), body(b"rest", ends=True), RESPONSE)
    assert len(router.asked) == 1
    assert kinds(answers) == ["request_headers", "request_body", "response_headers"]
    assert bytes_of(answers) == b"abc"


async def test_trailers_end_a_body_that_never_said_so():
    async with replay(Bent()) as client:
        answers = await client.play(head(), body(b"abc"), TRAILERS)
    assert kinds(answers) == ["request_headers", "request_body", "request_trailers"]


async def test_buffered_gets_one_answer_a_message():
    async with replay(Bent()) as client:
        answers = await client.play(head(mode=Mode.BUFFERED), body(b"abc", ends=True), RESPONSE)
    assert kinds(answers) == ["request_headers", "request_body", "response_headers"]


async def test_a_stream_may_begin_with_a_response():
    router = Bent()
    async with replay(router) as client:
        assert kinds(await client.play(RESPONSE)) == ["response_headers"]
    assert router.asked == []


async def test_ten_thousand_empty_pieces_cost_nothing_and_leave_nothing():
    router = Bent()
    async with replay(router) as client:
        answers = await client.play(head(), *([body(b"")] * 10_000), body(b"x", ends=True))
        assert client.service.streams == 0
    assert bytes_of(answers) == b"x"


async def test_a_client_that_leaves_in_the_middle_leaves_no_stream_behind():
    for cut in (0, 1, 2):
        async with replay(Bent(seconds=5.0)) as client:
            call = client.open()
            for message in (head(), body(b"abc"), body(b"", ends=True))[: cut + 1]:
                await call.write(bytes(message))
            await asyncio.sleep(0.05)
            assert client.service.streams == 1
            call.cancel()
            async with asyncio.timeout(5):
                while client.service.streams:
                    await asyncio.sleep(0.01)


async def test_a_bug_in_the_router_lets_the_request_go_on_undecided_and_is_counted(caplog):
    counted: Counter[str] = Counter()
    async with replay(Bent(RuntimeError("boom")), lambda event: counted.update([event])) as client:
        answers = await client.play(head(), body(b"abc", ends=True))
    assert kinds(answers) == ["request_headers", "request_body"]
    assert answers[0].dynamic_metadata is None
    assert bytes_of(answers) == b"abc"
    assert counted == {"router-bug": 1}
    assert "boom" in caplog.text


async def test_a_refusal_ends_the_exchange():
    async with replay(Bent(Refuse(status=503, message="none", reason="no-nodes"))) as client:
        answers = await client.play(head(), body(b"abc", ends=True))
    assert kinds(answers) == ["immediate_response"]


async def test_an_upload_that_stops_is_refused_and_not_waited_for_for_ever():
    counted: Counter[str] = Counter()
    async with replay(Bent(), lambda event: counted.update([event]), upload_idle_s=0.2) as client:
        call = client.open()
        await call.write(bytes(head()))
        await call.write(bytes(body(b"abc")))
        async with asyncio.timeout(5):
            answers = [answer async for answer in call]
    assert len(answers) == 1
    assert counted == {"upload-timeout": 1}


async def test_an_upload_that_drips_has_a_total_limit():
    async with replay(Bent(), upload_idle_s=0.5, upload_total_s=0.6) as client:
        call = client.open()
        await call.write(bytes(head()))

        async def drip() -> None:
            while True:
                await call.write(bytes(body(b"x")))
                await asyncio.sleep(0.1)

        dripping = asyncio.ensure_future(drip())
        async with asyncio.timeout(5):
            answers = [v3.ProcessingResponse.parse(answer) async for answer in call]
        dripping.cancel()
        await asyncio.gather(dripping, return_exceptions=True)
    assert [int(a.immediate_response.status.code) for a in answers] == [408]


async def test_what_is_no_processing_request_is_an_invalid_argument():
    async with replay(Bent()) as client:
        call = client.open()
        await call.write(b"\xff\xff\xff")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async for _ in call:
                pass
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT


async def test_a_message_that_says_nothing_known_is_passed_over():
    counted: Counter[str] = Counter()
    async with replay(Bent(), lambda event: counted.update([event])) as client:
        call = client.open()
        await call.write(b"")
        await call.write(bytes(head(ends=True)))
        await call.done_writing()
        assert len([answer async for answer in call]) == 1
    assert counted == {"unknown-message": 1}


async def test_another_method_is_unimplemented():
    async with replay(Bent()) as client:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await client.channel.unary_unary("/envoy.service.ext_proc.v3.ExternalProcessor/Other")(b"")
    assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED


async def test_a_whole_sixteen_megabyte_body_fits_one_buffered_message():
    data = b"x" * (16 * 1024 * 1024)
    router = Bent()
    async with replay(router) as client:
        answers = await client.play(head(mode=Mode.BUFFERED), body(data, ends=True))
    assert kinds(answers) == ["request_headers", "request_body"]
    assert router.asked[0].body == data
