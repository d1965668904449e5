"""The ext_proc service on grpc.aio: streams in, streams out, no decision of its own."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias

import grpc
from google.protobuf.message import DecodeError

from ext_proc import names, wire
from ext_proc.config import Limits
from ext_proc.protocol import Answer, Decide, Exchange, ResponseBody, ResponseHeaders, Undecided
from ext_proc.usage import Usage, UsageReader

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"

log = logging.getLogger(__name__)


class Router(Protocol):
    """Says where a request goes."""

    def reads(self, headers: Mapping[str, str]) -> bool:
        """Whether the body of such a request is worth waiting for."""
        ...

    async def route(self, asked: Decide) -> Answer: ...

    def answered(self, usage: Usage) -> None:
        """What the answer cost, where the gateway shows it to us."""
        ...


class Service(grpc.GenericRpcHandler):
    """`ExternalProcessor/Process` over raw bytes: one Exchange a stream."""

    def __init__(self, router: Router, limits: Limits, count: Callable[[str], None]) -> None:
        self._router = router
        self._limits = limits
        self._count = count
        self.streams = 0
        """Streams open now."""

    def service(self, details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[Any, Any] | None":
        if details.method != names.METHOD:
            return None
        return grpc.stream_stream_rpc_method_handler(self._process)

    async def _process(self, _: object, context: Context) -> None:
        exchange = Exchange(self._limits.body_bytes, self._router.reads)
        reader: UsageReader | None = None
        self.streams += 1
        try:
            while (message := await self._next(context, exchange)) is not grpc.aio.EOF:
                event = wire.event(message)
                if event is None:
                    self._count("unknown-message")
                    continue
                if isinstance(event, ResponseHeaders):
                    reader = UsageReader(event.headers)
                elif isinstance(event, ResponseBody) and reader is not None:
                    reader.feed(event.data, ends=event.ends)
                for command in exchange.feed(event):
                    if isinstance(command, Decide):
                        for effect in exchange.answer(await self._answer(command)):
                            await context.write(wire.response(effect))
                    else:
                        await context.write(wire.response(command))
        except DecodeError:
            self._count("undecodable-message")
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "not a ProcessingRequest")
        except TimeoutError:
            self._count("upload-timeout")
            await context.write(wire.response(exchange.stalled()))
        finally:
            self.streams -= 1
            if reader is not None:
                self._router.answered(reader.usage)

    async def _next(self, context: Context, exchange: Exchange) -> Any:
        """The stream's next message or EOF. TimeoutError: an upload that Envoy waits for us with takes too long."""
        if not exchange.uploading:
            return await context.read()
        now = asyncio.get_running_loop().time()
        exchange.started = exchange.started or now
        limits = self._limits
        async with asyncio.timeout_at(min(now + limits.upload_idle_s, exchange.started + limits.upload_total_s)):
            return await context.read()

    async def _answer(self, asked: Decide) -> Answer:
        try:
            return await self._router.route(asked)
        except Exception:  # a bug of ours must not fail the request: Envoy balances it, we log and count
            log.exception("the router failed; the request goes on undecided")
            self._count("router-bug")
            return Undecided(names.OURS)


def options(limits: Limits) -> list[tuple[str, int]]:
    """gRPC's own limits, all from ours; pings are allowed as often as a proxy likes (no GOAWAY surprises)."""
    return [
        ("grpc.max_receive_message_length", limits.message_bytes),
        ("grpc.max_send_message_length", limits.message_bytes),
        ("grpc.so_reuseport", 0),  # two services on one port would share streams at random: an error instead
        ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
        ("grpc.http2.max_ping_strikes", 0),
        ("grpc.keepalive_permit_without_calls", 1),
    ]
