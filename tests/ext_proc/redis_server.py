"""A real redis-server, and a wire to it that can be made slow."""

import asyncio
import contextlib
import shutil
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.e2e.processes import Process, listens
from tests.standin.running import free_ports


class RedisServer:
    """One server on a free port; nothing is written to disk."""

    def __init__(self, folder: Path) -> None:
        program = shutil.which("redis-server")
        if program is None:
            pytest.skip("there is no redis-server here: apt-get install redis-server")
        (self.port,) = free_ports(1)
        self._command = [program, "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
        self._log = folder / "redis.log"
        self.start()

    @property
    def url(self) -> str:
        """For sessions.url."""
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Start, or start again with nothing remembered."""
        self.process = Process(self._command, self._log)
        self.process.until(lambda: listens(self.port), "redis-server")

    def stop(self) -> None:
        """As a machine that hangs: connections stay, nothing answers."""
        self.process.send(signal.SIGSTOP)

    def go_on(self) -> None:
        """Hang no longer."""
        self.process.send(signal.SIGCONT)

    def end(self) -> None:
        """Gone, also if it hangs."""
        if self.process.alive:
            self.process.kill()


@contextlib.asynccontextmanager
async def slow_wire(port: int, seconds: float) -> AsyncIterator[int]:
    """A port behind which every answer of *port* comes *seconds* late, in order."""
    tasks: set[asyncio.Task[None]] = set()

    async def serve(inward: asyncio.StreamReader, out: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        ends = [out]
        try:
            there_in, there_out = await asyncio.open_connection("127.0.0.1", port)
            ends.append(there_out)
            async with asyncio.TaskGroup() as group:
                group.create_task(_pass(inward, there_out, 0.0))
                group.create_task(_pass(there_in, out, seconds))
        except* (OSError, asyncio.CancelledError):
            pass
        finally:
            for end in ends:
                end.transport.abort()
            tasks.discard(task)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await asyncio.sleep(0.01)  # who was let in a moment ago is served before he is sent away
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0.01)  # an aborted connection closes in the loop's next turn


async def _pass(source: asyncio.StreamReader, to: asyncio.StreamWriter, seconds: float) -> None:
    while data := await source.read(65536):
        await asyncio.sleep(seconds)
        to.write(data)
        await to.drain()
    raise ConnectionResetError
