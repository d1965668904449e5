"""How long to wait for an answer on an event loop that may itself be late."""

import asyncio
from typing import Any

LATE_S = 0.003
"""Timers are good to a millisecond or two; what is later than this, the loop was busy with something else."""
TURNS = 5
"""So many turns an answer that has arrived may need to get from the socket to who waits for it."""


async def ends(task: "asyncio.Task[Any]", due: float) -> bool:
    """Whether *task* ends by *due*, a time on the loop's clock.

    A loop that was busy notices the time before it reads what has arrived meanwhile. So what it was late by it gives
    back once, and an answer that lies there unread is read before we give up. On an idle loop that costs microseconds.
    """
    loop = asyncio.get_running_loop()
    wait = due - loop.time()
    if wait > 0 and not task.done():
        await asyncio.wait((task,), timeout=wait)
    late = loop.time() - due
    if late > LATE_S and not task.done():
        await asyncio.wait((task,), timeout=min(late, max(wait, 0.0)))
    for _ in range(TURNS):
        if task.done():
            return True
        await asyncio.sleep(0)
    return task.done()


def was_late(due: float) -> bool:
    """It is so much past *due* that the loop and not the one we waited for is to blame."""
    return asyncio.get_running_loop().time() - due > LATE_S
