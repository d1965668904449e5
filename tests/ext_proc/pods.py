"""Pods of every kind: each is a real server that behaves as told once it was asked."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

OK = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n"

Behaviour = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def answers(body: bytes, head: bytes = OK) -> Behaviour:
    async def behave(_: asyncio.StreamReader, out: asyncio.StreamWriter) -> None:
        out.write(head + b"content-length: %d\r\n\r\n" % len(body) + body)

    return behave


async def hangs(_: asyncio.StreamReader, out: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


async def drips(_: asyncio.StreamReader, out: asyncio.StreamWriter) -> None:
    out.write(OK + b"\r\n")
    while True:
        out.write(b"x")
        await out.drain()
        await asyncio.sleep(0.02)


async def never_ends(_: asyncio.StreamReader, out: asyncio.StreamWriter) -> None:
    out.write(OK + b"\r\n")
    while True:
        out.write(b"# padding padding padding padding padding\n" * 10_000)
        await out.drain()


async def hangs_up(_: asyncio.StreamReader, out: asyncio.StreamWriter) -> None:
    out.transport.abort()


class Pods:
    """Servers on free ports; *asked* counts the requests of each."""

    def __init__(self) -> None:
        self.asked: dict[str, int] = {}
        self._servers: list[asyncio.Server] = []
        self._open: set[asyncio.Task[None]] = set()

    async def add(self, behave: Behaviour, host: str = "127.0.0.1") -> str:
        async def serve(inward: asyncio.StreamReader, out: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._open.add(task)
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                while await inward.readuntil(b"\r\n\r\n"):
                    self.asked[address] += 1
                    await behave(inward, out)
                    await out.drain()
            out.transport.abort()
            self._open.discard(task)

        server = await asyncio.start_server(serve, host, 0)
        self._servers.append(server)
        port = server.sockets[0].getsockname()[1]
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self.asked[address] = 0
        return address

    async def close(self) -> None:
        for server in self._servers:
            server.close()
        await asyncio.sleep(0.01)  # who was let in a moment ago is served before he is sent away
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)
        await asyncio.sleep(0.01)  # an aborted connection closes in the loop's next turn
