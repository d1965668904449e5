"""Stand-ins in a thread of their own, for tests and the demo."""

import asyncio
import random
import socket
import threading
from collections.abc import Coroutine, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar

from tests.standin.pod import Pod

T = TypeVar("T")


class Loop:
    """An event loop in a thread: `do` runs a coroutine there and waits for it."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def do(self, work: Coroutine[Any, Any, T], seconds: float = 30) -> T:
        """The result of *work*."""
        future: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return future.result(seconds)

    def close(self) -> None:
        """Stop the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()


@contextmanager
def running(pods: Iterable[Pod]) -> Iterator[Loop]:
    """Start *pods*; on leaving they are gone."""
    pods = list(pods)
    loop = Loop()
    try:
        for pod in pods:
            loop.do(pod.start())
        yield loop
    finally:
        for pod in pods:
            loop.do(pod.stop())
        loop.close()


def free_ports(count: int) -> list[int]:
    """*count* ports side by side that nobody has just now, outside the range the system gives to clients."""
    while True:
        first = random.randrange(20_000, 32_000 - count)
        ports = list(range(first, first + count))
        if all(map(_free, ports)):
            return ports


def _free(port: int) -> bool:
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
