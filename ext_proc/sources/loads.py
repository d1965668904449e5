"""Every pod's own figures, read from its /metrics."""

import asyncio
import logging
import math
import random
import time
from collections.abc import Callable

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from ext_proc.config import FleetConfig
from ext_proc.errors import SourceDown
from ext_proc.fleet import LiveFleet
from policy.types import Load

log = logging.getLogger(__name__)

PAGE_BYTES = 5 * 1024 * 1024
AT_ONCE = 64
_NAMES = {
    "vllm:num_requests_running": "running",
    "vllm:num_requests_waiting": "waiting",
    "vllm:kv_cache_usage_perc": "memory",
    "vllm:gpu_cache_usage_perc": "memory",  # vLLM before 0.9
}
_WANTED = tuple(f"{name}{after}" for name in _NAMES for after in (" ", "{"))


class Scraper:
    """All pods at once, each with its own time-out: one that hangs delays nobody."""

    def __init__(self, settings: FleetConfig, fleet: LiveFleet, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._fleet = fleet
        self._clock = clock
        self._gate = asyncio.Semaphore(AT_ONCE)
        self.failed = 0
        """Pages that could not be read so far."""

    async def run(self) -> None:
        """Read everybody every `scrape_s` seconds, for ever."""
        async with self._session() as session:
            while True:
                began = self._clock()
                await self._round(session)
                self._fleet.tick(self._clock())
                pause = self._settings.scrape_s * random.uniform(0.9, 1.1)  # noqa: S311 - replicas must not march in step
                await asyncio.sleep(max(0.0, pause - (self._clock() - began)))

    async def once(self) -> None:
        """Read everybody once."""
        async with self._session() as session:
            await self._round(session)

    async def _round(self, session: aiohttp.ClientSession) -> None:
        nodes = self._fleet.fleet.nodes
        await asyncio.gather(*(self._read(session, node.address) for node in nodes))

    async def _read(self, session: aiohttp.ClientSession, address: str) -> None:
        try:
            async with self._gate:
                load = loads(await _page(session, f"http://{address}/metrics"))
        except SourceDown as exc:
            self.failed += 1
            log.debug("loads: %s", exc)
            self._fleet.unseen(address, self._clock())
        else:
            self._fleet.observed(address, load, self._clock())

    def _session(self) -> aiohttp.ClientSession:
        timeout = aiohttp.ClientTimeout(total=self._settings.scrape_timeout_s)
        return aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0), trust_env=False)


def loads(page: str) -> Load:
    """What a metrics page says. Several engines behind one address: requests add up, the fullest cache counts.

    Raises SourceDown when the page is not Prometheus text. A figure that is missing or NaN is not known.
    """
    # Only the few lines we want reach the parser: pages run to megabytes.
    wanted = "\n".join(line for line in page.splitlines() if line.startswith(_WANTED))
    found: dict[str, list[float]] = {}
    try:
        for family in text_string_to_metric_families(wanted + "\n"):
            for sample in family.samples:
                found.setdefault(_NAMES[sample.name], []).append(sample.value)
    except (ValueError, KeyError) as exc:
        raise SourceDown(f"metrics page: {exc}") from exc
    running, waiting, memory = (_finite(found.get(name)) for name in ("running", "waiting", "memory"))
    return Load(
        running=None if running is None else sum(running),
        waiting=None if waiting is None else sum(waiting),
        memory=None if memory is None else min(1.0, max(memory)),
    )


def _finite(values: list[float] | None) -> list[float] | None:
    if not values or any(math.isnan(value) or value < 0 for value in values):
        return None
    return values


async def _page(session: aiohttp.ClientSession, url: str) -> str:
    try:
        async with session.get(url, allow_redirects=False) as response:
            if response.status != 200:
                raise SourceDown(f"{url} answered {response.status}")
            raw = await response.content.read(PAGE_BYTES + 1)
            while not response.content.at_eof() and len(raw) <= PAGE_BYTES:
                raw += await response.content.read(PAGE_BYTES + 1 - len(raw))
    except (aiohttp.ClientError, TimeoutError, OSError) as exc:
        raise SourceDown(f"{url}: {type(exc).__name__}") from exc
    if len(raw) > PAGE_BYTES:
        raise SourceDown(f"{url}: more than {PAGE_BYTES} bytes")
    return raw.decode("utf-8", "replace")
