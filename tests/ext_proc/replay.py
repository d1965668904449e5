"""A gRPC client that plays message sequences Envoy makes only sometimes, written with envoy-data-plane alone."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import envoy_data_plane.envoy.config.core.v3 as core
import grpc
from envoy_data_plane.envoy.service.ext_proc import v3

from ext_proc import names, server
from ext_proc.config import Limits
from ext_proc.protocol import Mode


def head(*, ends: bool = False, mode: Mode | None = Mode.FULL_DUPLEX, **headers: str) -> v3.ProcessingRequest:
    pairs = {":method": "POST", ":path": "/v1/chat/completions", ":authority": "x"}
    pairs |= {name.replace("_", "-"): value for name, value in headers.items()}
    sent = core.HeaderMap(headers=[core.HeaderValue(key=k, raw_value=v.encode()) for k, v in pairs.items()])
    request = v3.ProcessingRequest(request_headers=v3.HttpHeaders(headers=sent, end_of_stream=ends))
    if mode is not None:
        request.protocol_config = v3.ProtocolConfiguration(request_body_mode=mode.value, response_body_mode=mode.value)
    return request


def body(data: bytes, *, ends: bool = False) -> v3.ProcessingRequest:
    return v3.ProcessingRequest(request_body=v3.HttpBody(body=data, end_of_stream=ends))


TRAILERS = v3.ProcessingRequest(request_trailers=v3.HttpTrailers())
RESPONSE = v3.ProcessingRequest(response_headers=v3.HttpHeaders())


class Replay:
    """One service and a channel to it."""

    def __init__(self, service: server.Service, channel: grpc.aio.Channel) -> None:
        self.service = service
        self.channel = channel
        self._call = channel.stream_stream(names.METHOD)

    def open(self):
        return self._call()

    async def play(self, *messages: v3.ProcessingRequest) -> list[v3.ProcessingResponse]:
        """Send all, half-close, and read to the end."""
        call = self.open()
        for message in messages:
            await call.write(bytes(message))
        await call.done_writing()
        return [v3.ProcessingResponse.parse(answer) async for answer in call]


@asynccontextmanager
async def replay(router: server.Router, count=lambda event: None, **limits) -> AsyncIterator[Replay]:
    settings = Limits(**limits)
    service = server.Service(router, settings, count)
    front = grpc.aio.server(options=server.options(settings))
    front.add_generic_rpc_handlers((service,))
    port = front.add_insecure_port("127.0.0.1:0")
    await front.start()
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options) as channel:
        yield Replay(service, channel)
    await front.stop(0)


def kinds(answers: list[v3.ProcessingResponse]) -> list[str]:
    """Which message each answer answers."""
    names_ = [f"{side}_{part}" for side in ("request", "response") for part in ("headers", "body", "trailers")]
    return [next(n for n in [*names_, "immediate_response"] if getattr(a, n) is not None) for a in answers]


def bytes_of(answers: list[v3.ProcessingResponse]) -> bytes:
    """The body that goes on, from its pieces."""
    pieces = [a.request_body.response.body_mutation.streamed_response for a in answers if a.request_body is not None]
    return b"".join(piece.body for piece in pieces)
