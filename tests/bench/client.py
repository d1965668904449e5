"""A load generator that costs little itself: keep-alive connections, one request at a time on each."""

import asyncio
import time
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np


class Run(NamedTuple):
    """One round against one target."""

    rate: float
    """Answers a second."""
    p50_ms: float
    p99_ms: float
    failed: int
    """Answers that were not 200."""


def post(body: bytes, *headers: str) -> bytes:
    """A whole HTTP/1.1 request."""
    lines = ["POST /v1/chat/completions HTTP/1.1", "host: bench", "content-type: application/json", *headers]
    return "\r\n".join([*lines, f"content-length: {len(body)}", "", ""]).encode() + body


async def load(port: int, requests: Iterator[bytes], *, connections: int, seconds: float) -> Run:
    """Send what *requests* yields over *connections* connections for *seconds*."""
    latencies: list[float] = []
    failed = 0
    until = time.perf_counter() + seconds

    async def work() -> None:
        nonlocal failed
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while time.perf_counter() < until:
            began = time.perf_counter()
            writer.write(next(requests))
            head = await reader.readuntil(b"\r\n\r\n")
            lower = head.lower()
            at = lower.index(b"content-length:")
            await reader.readexactly(int(lower[at + 15 : lower.index(b"\r\n", at)]))
            latencies.append(time.perf_counter() - began)
            failed += head[9:12] != b"200"
        writer.close()

    began = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(connections)))
    spent = time.perf_counter() - began
    p50, p99 = np.percentile(latencies, (50, 99)) * 1000.0
    return Run(len(latencies) / spent, float(p50), float(p99), failed)
