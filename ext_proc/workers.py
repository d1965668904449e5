"""Several workers, a process each: started before anything of gRPC exists, started again when one dies."""

import asyncio
import logging
import os
import signal
import sys
import threading
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable

log = logging.getLogger(__name__)

FIRST_S, LONGEST_S = 1.0, 30.0
"""Before it is started again; twice as long each time, until one lived longer than the longest."""
SERVING = b"serving\n"


class Supervisor:
    """Holds both ends of every worker: what it says on stdout, and its stdin, which closes when we are gone."""

    def __init__(self, command: list[str], count: int) -> None:
        """Worker *i* is `python *command* --worker i`."""
        self._command = command
        self._count = count
        self._stopping = asyncio.Event()
        self._served = asyncio.Event()
        self._never_up: set[int] = set()

    async def run(self) -> int:
        """Until SIGTERM or SIGINT, which is passed on: 0; or until all ended before any one served: 1."""
        loop = asyncio.get_running_loop()
        for name in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(name, self._stopping.set)
        async with asyncio.TaskGroup() as group:
            for worker in range(self._count):
                group.create_task(self._keep(worker))
        return 0 if self._served.is_set() or len(self._never_up) < self._count else 1

    async def _keep(self, worker: int) -> None:
        pause, loop = FIRST_S, asyncio.get_running_loop()
        while not self._stopping.is_set():
            began = loop.time()
            status = await self._live(worker)
            if self._stopping.is_set():
                return
            if not self._served.is_set() and await self._nobody(worker, status):
                return
            if loop.time() - began > LONGEST_S:
                pause = FIRST_S
            log.warning("worker %d ended with %s; started again in %g s", worker, status, pause)
            await _first(self._stopping, seconds=pause)
            pause = min(2 * pause, LONGEST_S)

    async def _live(self, worker: int) -> int:
        """One life; its exit status."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, *self._command, "--worker", str(worker), stdin=PIPE, stdout=PIPE
        )
        hearing = asyncio.ensure_future(self._hear(process))
        ended = asyncio.ensure_future(process.wait())
        stop = asyncio.ensure_future(self._stopping.wait())
        await asyncio.wait((ended, stop), return_when=asyncio.FIRST_COMPLETED)
        if not ended.done():
            process.terminate()
        stop.cancel()
        await hearing
        return await ended

    async def _hear(self, process: Process) -> None:
        while process.stdout is not None and (said := await process.stdout.read(65536)):
            if SERVING in said:
                self._served.set()

    async def _nobody(self, worker: int, status: int) -> bool:
        """What one worker cannot do at the very start the others hardly can: wait for them, and then give up."""
        self._never_up.add(worker)
        if len(self._never_up) == self._count:
            log.error("no worker came up (the last one ended with %s); giving up", status)
            self._stopping.set()
        await _first(self._stopping, self._served)
        return self._stopping.is_set()


def serving() -> None:
    """In a worker: tell the supervisor that we serve."""
    os.write(sys.stdout.fileno(), SERVING)


def when_orphaned(then: Callable[[], object]) -> None:
    """In a worker: call *then* on the event loop when the supervisor is gone, however it went."""
    loop = asyncio.get_running_loop()

    def wait() -> None:
        while os.read(0, 1):
            pass
        loop.call_soon_threadsafe(then)

    threading.Thread(target=wait, name="orphaned", daemon=True).start()


async def _first(*events: asyncio.Event, seconds: float | None = None) -> None:
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()
