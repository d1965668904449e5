"""A no-op ext_proc on grpc.aio: what the hop itself costs, before anything is decided."""

import argparse
import asyncio
from typing import Any

import grpc
import uvloop

from ext_proc import names, server, wire
from ext_proc.config import Limits
from ext_proc.protocol import Answer, Decide, Undecided


class Nobody:
    """A router that decides nothing."""

    async def route(self, asked: Decide) -> Answer:
        return Undecided()


class Bare(grpc.GenericRpcHandler):
    """The least a Python ext_proc can do in headers or buffered mode: a fixed answer a message, read from one tag byte."""

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        return grpc.stream_stream_rpc_method_handler(self._process) if details.method == names.METHOD else None

    async def _process(self, _: object, context: Any) -> None:
        while (message := await context.read()) is not grpc.aio.EOF:
            event = wire.event(message)
            field = b"\x0a\x00" if type(event).__name__ == "Headers" else b"\x1a\x00"
            await context.write(field)


async def run(port: int, kind: str) -> None:
    limits = Limits()
    handler = Bare() if kind == "bare" else server.Service(Nobody(), limits, lambda _: None)
    front = grpc.aio.server(options=server.options(limits))
    front.add_generic_rpc_handlers((handler,))
    front.add_insecure_port(f"127.0.0.1:{port}")
    await front.start()
    await front.wait_for_termination()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("kind", choices=("bare", "exchange"))
    options = parser.parse_args()
    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    uvloop.run(run(options.port, options.kind))
