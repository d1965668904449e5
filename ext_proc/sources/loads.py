"""Every pod's own figures, read from its /metrics."""

import asyncio
import logging
import math
import random
import re
import time
from collections.abc import Callable

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from ext_proc.config import FleetConfig
from ext_proc.errors import SourceDown
from policy.live import LiveFleet
from policy.types import Load

log = logging.getLogger(__name__)

PAGE_BYTES = 5 * 1024 * 1024
"""A longer page is not read to its end."""
AT_ONCE = 256
"""Pages under way: far more than a healthy fleet needs, so that those who hang leave room for the others."""
TICK_S = 1.0
_FIGURES = {
    "vllm:num_requests_running": "running",
    "vllm:num_requests_waiting": "waiting",
    "vllm:kv_cache_usage_perc": "memory",
    "vllm:gpu_cache_usage_perc": "memory",  # vLLM before 0.9
}
_WANTED = re.compile(r"\nvllm:(?:num_requests_(?:running|waiting)|(?:kv|gpu)_cache_usage_perc)[ \t{][^\n]*")


class Scraper:
    """Every pod has its own rhythm and its own time-out: one that hangs delays nobody."""

    def __init__(self, settings: FleetConfig, fleet: LiveFleet, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._fleet = fleet
        self._clock = clock
        self._gate = asyncio.Semaphore(AT_ONCE)
        self.failed = 0
        """Pages that could not be read so far."""
        self.silent = 0
        """Pages that were read and lacked a figure."""

    async def run(self) -> None:
        """Read every pod about every `scrape_s` seconds, for ever; who comes and goes is noticed within a second."""
        following: dict[str, asyncio.Task[None]] = {}
        async with self._session() as session, asyncio.TaskGroup() as group:
            while True:
                here = self._fleet.fleet.by_address
                for address in [address for address in following if address not in here]:
                    following.pop(address).cancel()
                for address in here:
                    if address not in following:
                        following[address] = group.create_task(self._follow(session, address))
                self._fleet.tick(self._clock())
                await asyncio.sleep(TICK_S)

    async def once(self) -> None:
        """Read everybody once."""
        async with self._session() as session:
            await asyncio.gather(*(self._read(session, node.address) for node in self._fleet.fleet.nodes))

    async def _follow(self, session: aiohttp.ClientSession, address: str) -> None:
        while True:
            await self._read(session, address)
            # Neither replicas nor pods march in step.
            await asyncio.sleep(self._settings.scrape_s * random.uniform(0.9, 1.1))  # noqa: S311 - not a secret

    async def _read(self, session: aiohttp.ClientSession, address: str) -> None:
        try:
            async with self._gate:
                unread = self._fleet.unread(address)
                load = loads(await _page(session, f"http://{address}/metrics"))
        except SourceDown as exc:
            self.failed += 1
            if isinstance(exc, NobodyListens):  # vLLM serves metrics and requests on one port
                self._fleet.refused(address, self._clock())
            log.debug("loads: %s", exc)
            return
        self.silent += None in (load.running, load.waiting, load.memory)
        self._fleet.observed(address, load, self._clock(), counted=unread)

    def _session(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=self._settings.scrape_timeout_s),
            connector=aiohttp.TCPConnector(limit=0),
            # Nothing is unpacked: a few kilobytes can become gigabytes.
            headers={"accept-encoding": "identity"},
            auto_decompress=False,
            trust_env=False,
        )


class NobodyListens(SourceDown):
    """The pod's port refused the connection."""


def loads(page: str) -> Load:
    """What a metrics page says. Several engines behind one address: requests add up, the fullest cache counts.

    Raises SourceDown when the page is not Prometheus text. A figure that is missing or NaN is not known.
    """
    # Only the few lines we want reach the parser: it takes 20 ms for a whole page of vLLM's, and 0.1 ms for these.
    wanted = "".join(_WANTED.findall("\n" + page))
    found: dict[str, list[float]] = {}
    try:
        for family in text_string_to_metric_families(wanted + "\n"):
            for sample in family.samples:
                found.setdefault(_FIGURES[sample.name], []).append(sample.value)
    except (ValueError, LookupError) as exc:
        raise SourceDown(f"metrics page: {type(exc).__name__}") from exc
    running, waiting, memory = (_known(found.get(name)) for name in ("running", "waiting", "memory"))
    return Load(
        running=None if running is None else sum(running),
        waiting=None if waiting is None else sum(waiting),
        memory=None if memory is None else min(1.0, max(memory)),
    )


def _known(values: list[float] | None) -> list[float] | None:
    """One engine that does not know its figure: nobody knows the sum."""
    if not values or not all(math.isfinite(value) and value >= 0 for value in values):
        return None
    return values


async def _page(session: aiohttp.ClientSession, url: str) -> str:
    raw = bytearray()
    try:
        async with session.get(url, allow_redirects=False) as response:
            if response.status != 200:
                raise SourceDown(f"{url} answered {response.status}")
            async for chunk in response.content.iter_any():
                raw += chunk
                if len(raw) > PAGE_BYTES:
                    raise SourceDown(f"{url}: more than {PAGE_BYTES} bytes")
    except (aiohttp.ClientError, TimeoutError, OSError) as exc:
        if isinstance(exc, aiohttp.ClientConnectorError) and isinstance(exc.os_error, ConnectionRefusedError):
            raise NobodyListens(url) from exc
        raise SourceDown(f"{url}: {type(exc).__name__}") from exc
    return raw.decode("utf-8", "replace")
