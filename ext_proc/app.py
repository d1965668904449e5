"""The composition root: the one place that builds the parts and joins them."""

import asyncio
import gc
import logging
import secrets
import signal
import time
from contextlib import AsyncExitStack

import grpc
from aiohttp import web
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from ext_proc import config as configuration
from ext_proc import listening, names, server, workers
from ext_proc.accesslog import AccessLogs, Served
from ext_proc.certificates import Certificates
from ext_proc.config import Config
from ext_proc.gather import Gather
from ext_proc.observe.metrics import Metrics
from ext_proc.observe.nodes import Nodes
from ext_proc.router import Router
from ext_proc.sources.discovery import Discovery, FileNodes, StaticNodes
from ext_proc.sources.intents import Intents
from ext_proc.sources.loads import Scraper
from ext_proc.sources.places import Places
from ext_proc.sources.redis_sessions import RedisSessions
from ext_proc.sources.sessions import MemorySessions, Sessions
from models import bundle
from models.backends import open_embedder
from models.clusters import Clusters
from models.embedder import Embedder, Encoder, cores
from policy.live import LiveFleet

log = logging.getLogger(__name__)

NOTICE_S = 1.0
"""How long a draining service goes on taking streams, so that Envoy's health check can notice first."""


class Parts:
    """Everything a decision needs, without a server around it."""

    def __init__(self, config: Config) -> None:
        """Loads and warms up the models. Raises ConfigError or models.errors.ModelError, naming what is wrong."""
        self.metrics = Metrics()
        self.intents = _intents(config)
        self.places = Places(config.places)
        self.sessions = _sessions(config)
        self.discovery: Discovery = (
            FileNodes(config.fleet.file) if config.fleet.file is not None else StaticNodes(config.fleet.nodes)
        )
        self.fleet = LiveFleet(self.discovery.nodes(), config.rules.watermarks)
        self.scraper = Scraper(config.fleet, self.fleet)
        gather = Gather(self.intents, self.places, self.sessions)
        self.router = Router(
            config,
            gather=gather,
            sessions=self.sessions,
            fleet=self.fleet,
            metrics=self.metrics,
            bundle=self.intents.bundle,
            secret=config.sessions.secret.encode() or secrets.token_bytes(32),
            address=self.places.address,
        )
        self._watch()

    def _watch(self) -> None:
        """Show on the metrics page what sources count for themselves, and every node."""
        self.metrics.show(Nodes(self.fleet, time.monotonic))
        self.metrics.watch("intents", self.intents, "truncated", "late")
        self.metrics.watch("places", self.places, "refused", "damaged")
        self.metrics.watch("loads", self.scraper, "failed", "silent")
        if isinstance(self.sessions, RedisSessions):
            self.metrics.watch("sessions", self.sessions, "dropped", "foreign")
        if isinstance(self.discovery, FileNodes):
            self.metrics.watch("discovery", self.discovery, "refused")

    def heard(self, served: Served) -> None:
        """What came of a request, from Envoy's access log: the pod that served it has the credit, or the blame."""
        now = asyncio.get_running_loop().time()
        if served.failed:
            self.fleet.failed(served.node, now)
        elif served.ms is not None:
            self.fleet.answered(served.node, served.ms, now)

    async def close(self) -> None:
        """Give back threads and connections."""
        await self.sessions.close()
        self.intents.close()


async def serve(config: Config, worker: int = 0, *, supervised: bool = False) -> None:
    """Run one worker until SIGTERM, SIGINT or the end of its supervisor, then drain and return."""
    parts = Parts(config)
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stopping.set)
    if supervised:
        workers.when_orphaned(stopping.set)

    async with AsyncExitStack() as stack:
        stack.push_async_callback(parts.close)
        checks = health.aio.HealthServicer()
        await _announce(checks, serving=True)
        service = server.Service(parts.router, config.server.limits, parts.metrics.count)
        parts.metrics.streams.set_function(lambda: service.streams)
        certificates = None if config.server.tls is None else Certificates(config.server.tls)
        front = grpc.aio.server(options=server.options(config.server.limits))
        front.add_generic_rpc_handlers((service, AccessLogs(parts.heard, parts.metrics.count)))
        health_pb2_grpc.add_HealthServicer_to_server(checks, front)
        where = listening.bind(front, config.server, worker, certificates)
        await front.start()
        aside = grpc.aio.server(options=server.ALONE)
        health_pb2_grpc.add_HealthServicer_to_server(checks, aside)
        place = f"{config.server.host}:{config.server.health_port + worker}"
        with listening.named("health_port", place):
            aside.add_insecure_port(place)
        await aside.start()
        await stack.enter_async_context(_page(parts.metrics, config.server.host, config.server.metrics_port + worker))

        tasks = [
            loop.create_task(job)
            for job in (parts.scraper.run(), parts.places.watch(), parts.discovery.watch(parts.fleet.replace))
        ]
        if certificates is not None:
            parts.metrics.watch("tls", certificates, "refused")
            tasks.append(loop.create_task(certificates.watch()))
        # What is loaded now stays: the collector need not look through it again at every full collection.
        gc.collect()
        gc.freeze()
        log.info("serving on %s, %d nodes", where, len(parts.fleet.fleet))
        if supervised:
            workers.serving()
        watch = loop.create_task(stopping.wait())
        await asyncio.wait([watch, *tasks], return_when=asyncio.FIRST_COMPLETED)

        await _announce(checks, serving=False)
        await asyncio.sleep(min(NOTICE_S, config.server.drain_s))
        await front.stop(config.server.drain_s)
        await aside.stop(0)
        for task in (watch, *tasks):
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, Exception):
                raise result


def _intents(config: Config) -> Intents:
    active = bundle.load(config.bundle or bundle.DEFAULT)
    settings = config.encoder

    def opened() -> Embedder:
        embedder = open_embedder(active.encoder(encoder(settings)))
        active.require(embedder.fingerprint)
        embedder.embed("warm up")
        return embedder

    threads = settings.threads or cores()
    return Intents(opened, Clusters(active), threads=threads, queue=settings.queue, cache=settings.cache)


def encoder(settings: configuration.Encoder) -> Encoder:
    """The part of the settings that says how a text becomes a vector."""
    return Encoder(
        backend=settings.backend,
        precision=settings.precision,
        model=None if settings.path is None else str(settings.path),
        tokens=settings.tokens,
        layer=settings.layer,
        cache=None if settings.cache_dir is None else str(settings.cache_dir),
    )


def _sessions(config: Config) -> Sessions:
    return RedisSessions(config.sessions) if config.sessions.store == "redis" else MemorySessions(config.sessions)


async def _announce(checks: health.aio.HealthServicer, *, serving: bool) -> None:
    """liveness stays SERVING while we drain: nobody should kill us for that."""
    for name in names.HEALTH_NAMES:
        up = serving or name == "liveness"
        status = health_pb2.HealthCheckResponse.SERVING if up else health_pb2.HealthCheckResponse.NOT_SERVING
        await checks.set(name, status)


class _page:  # noqa: N801 - used as a function: `async with _page(...)`
    """`GET /metrics` while the context is open."""

    def __init__(self, metrics: Metrics, host: str, port: int) -> None:
        async def show(_: web.Request) -> web.Response:
            return web.Response(body=metrics.page(), content_type="text/plain", charset="utf-8")

        app = web.Application()
        app.router.add_get("/metrics", show)
        self._runner = web.AppRunner(app, access_log=None)
        self._where = host, port

    async def __aenter__(self) -> None:
        await self._runner.setup()
        host, port = self._where
        with listening.named("metrics_port", f"{host}:{port}"):
            await web.TCPSite(self._runner, host, port).start()

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()
