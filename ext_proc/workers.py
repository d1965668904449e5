"""Several workers, a process each: started before anything of gRPC exists, started again when one dies."""

import asyncio
import logging
import signal
import sys

log = logging.getLogger(__name__)

AGAIN_S = 1.0


async def supervise(command: list[str], count: int) -> None:
    """Run `command --worker i` for each worker until SIGTERM or SIGINT, which is passed on."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stopping.set)
    async with asyncio.TaskGroup() as group:
        for worker in range(count):
            group.create_task(_keep([*command, "--worker", str(worker)], stopping))


async def _keep(command: list[str], stopping: asyncio.Event) -> None:
    stop = asyncio.ensure_future(stopping.wait())
    while not stopping.is_set():
        process = await asyncio.create_subprocess_exec(sys.executable, *command)
        ended = asyncio.ensure_future(process.wait())
        await asyncio.wait((ended, stop), return_when=asyncio.FIRST_COMPLETED)
        if stopping.is_set():
            if process.returncode is None:
                process.terminate()
            await ended
            return
        log.warning("worker ended with %s; started again in %g s", process.returncode, AGAIN_S)
        await asyncio.wait((stop,), timeout=AGAIN_S)
