"""`python -m tests.bench.noop PORT`: a no-op ext_proc on grpc.aio, for what the hop itself costs."""

import sys
from collections.abc import Mapping

import grpc
import uvloop

from ext_proc import server
from ext_proc.config import Limits
from ext_proc.protocol import Answer, Decide, Undecided
from ext_proc.usage import Usage


class Nobody:
    """A router that decides nothing."""

    def reads(self, headers: Mapping[str, str]) -> bool:
        return True

    async def route(self, asked: Decide) -> Answer:
        return Undecided()

    def answered(self, usage: Usage) -> None:
        pass


async def run(port: int) -> None:
    limits = Limits()
    front = grpc.aio.server(options=server.options(limits))
    front.add_generic_rpc_handlers((server.Service(Nobody(), limits, lambda _: None),))
    front.add_insecure_port(f"127.0.0.1:{port}")
    await front.start()
    await front.wait_for_termination()


if __name__ == "__main__":
    uvloop.run(run(int(sys.argv[1])))
