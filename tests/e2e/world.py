"""A whole installation on free ports: pods, Isogloss, Envoy, and questions one can ask of them."""

import copy
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import yaml

from ext_proc import config as configuration
from ext_proc import envoy, names
from tests.e2e.processes import SERVE, Process, listens
from tests.standin.engine import Engine
from tests.standin.pod import Pod, Seen
from tests.standin.running import Loop, free_ports, running

Json = dict[str, Any]
Bend = Callable[[Json], None]
"""Changes the rendered Envoy configuration before it is used."""

MODES = ("headers", "buffered", "duplex")
BODY_LIMIT = 16 * 1024 * 1024
COOKIE = "isogloss"
NEVER_WRONG = ("spurious_msgs_received", "rejected_header_mutations")


class Envoy:
    """A running Envoy."""

    def __init__(self, text: str, folder: Path, port: int, admin_port: int, name: str = "envoy") -> None:
        self.port, self._admin = port, f"http://127.0.0.1:{admin_port}"
        self.access_log = folder / f"{name}-access.jsonl"
        path = folder / f"{name}.yaml"
        path.write_text(text)
        command = [envoy.binary(), "-c", path, "--use-dynamic-base-id", "--concurrency", "1", "-l", "warning"]
        command += ["--file-flush-interval-msec", "50"]
        self.process = Process(command, folder / f"{name}.log")
        self.process.until(lambda: listens(port), name)

    @property
    def url(self) -> str:
        """Where clients go."""
        return f"http://127.0.0.1:{self.port}"

    def stats(self, part: str) -> dict[str, int]:
        """Counters and gauges whose name contains *part*."""
        page = httpx.get(f"{self._admin}/stats", params={"format": "json", "filter": part}, timeout=10).json()
        return {stat["name"]: stat["value"] for stat in page["stats"] if "value" in stat}

    def ext_proc(self, name: str) -> int:
        """One of the ext_proc filter's counters."""
        counted = [value for key, value in self.stats("ext_proc").items() if key.endswith(f".{name}")]
        assert counted, f"this Envoy has no counter {name}"
        return sum(counted)

    def healthy_workers(self) -> int:
        """Workers Envoy would ask."""
        return self.stats("cluster.isogloss.membership_healthy")["cluster.isogloss.membership_healthy"]

    def check(self) -> None:
        """What must be zero after every test."""
        wrong = {name: self.ext_proc(name) for name in NEVER_WRONG}
        assert not any(wrong.values()), wrong

    def access(self, marker: str) -> Json:
        """The access log's line on the request with that x-request-id, once it is there."""
        give_up = time.monotonic() + 15
        while time.monotonic() < give_up:
            for line in self.access_log.read_text().splitlines() if self.access_log.exists() else []:
                if marker in line:
                    found: Json = json.loads(line)
                    return found
            time.sleep(0.05)
        raise AssertionError(f"{marker} is not in the access log")


@dataclass
class World:
    """Everything running; bend it in a test, it goes away afterwards."""

    mode: str
    folder: Path
    pods: list[Pod]
    loop: Loop
    settings: Json
    config: configuration.Config
    service: Process | None = None
    envoy: Envoy = field(init=False)

    @property
    def url(self) -> str:
        """Where clients go."""
        return self.envoy.url

    def start_service(self) -> None:
        """Start Isogloss, or start it again, and wait until Envoy believes in it."""
        self.service = Process([*SERVE, self.folder / "isogloss.yaml"], self.folder / "isogloss.log")
        server = self.config.server
        sockets = [server.socket_of(worker) for worker in range(server.workers)] if server.socket else []
        places = [*server.ports().get("port", ()), *sockets, server.health_port]
        self.service.until(lambda: all(map(listens, places)), "isogloss")

    def wait_for_workers(self, count: int, seconds: float = 20) -> None:
        """Until Envoy counts *count* healthy workers."""
        until(lambda: self.envoy.healthy_workers() == count, f"{count} healthy workers", seconds)

    def client(self, **settings: Any) -> httpx.Client:
        """A client of this installation."""
        return httpx.Client(base_url=self.url, timeout=60, verify=False, **settings)

    def last(self, marker: str) -> Seen:
        """What a pod saw of the request that carried *marker* as x-request-id."""
        return self.all(marker)[-1]

    def all(self, marker: str) -> list[Seen]:
        """Every arrival of that request, on any pod."""
        return [seen for _, seen in self.arrivals(marker)]

    def arrivals(self, marker: str) -> list[tuple[Pod, Seen]]:
        """The same with the pods it arrived at."""
        return [(pod, seen) for pod in self.pods for seen in list(pod.seen) if seen.header("x-request-id") == marker]


@contextmanager
def world(
    folder: Path,
    mode: str = "buffered",
    *,
    pods: int = 3,
    workers: int = 1,
    settings: Mapping[str, Any] | None = None,
    bend: Bend | None = None,
    others: tuple[Json, ...] = (),
    start: bool = True,
) -> Iterator[World]:
    """Pods, service and Envoy. *others*: nodes that are not stand-ins; *settings*: sections of isogloss.yaml."""
    with ExitStack() as stack:
        ports = free_ports(pods)
        fleet = [Pod(f"127.0.0.1:{port}", engine=Engine(tokens_per_s=2000)) for port in ports]
        loop = stack.enter_context(running(fleet))
        written = _settings(mode, workers, [*_nodes(fleet), *others], settings or {})
        path = folder / "isogloss.yaml"
        path.write_text(yaml.safe_dump(written, allow_unicode=True))
        made = World(mode, folder, fleet, loop, written, configuration.load(path))
        stack.callback(lambda: made.service and made.service.end())
        if start:
            made.start_service()
        made.envoy = start_envoy(made.config, folder, bend)
        stack.callback(made.envoy.process.end)
        made.wait_for_workers(workers if start else 0)
        yield made
        made.envoy.check()


def start_envoy(config: configuration.Config, folder: Path, bend: Bend | None = None) -> Envoy:
    """Envoy with the configuration we generate for *config*, bent if a test needs it."""
    text = envoy.render(config, folder / "envoy-access.jsonl")
    if bend is not None:
        tree = yaml.safe_load(text)
        bend(tree)
        text = yaml.safe_dump(tree)
    return Envoy(text, folder, config.envoy.port, config.envoy.admin_port)


def by_pool(tree: Json) -> None:
    """Before each of our routes, the same one only for requests of the pool `general`."""
    manager = tree["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
    host = manager["route_config"]["virtual_hosts"][0]
    first = copy.deepcopy(host["routes"])
    for route in first:
        route["match"].setdefault("headers", []).append({"name": names.POOL, "string_match": {"exact": "general"}})
        route.setdefault("response_headers_to_add", []).append({"header": {"key": "x-route", "value": "by-pool"}})
    host["routes"] = first + host["routes"]


def until(true: Callable[[], bool], what: str, seconds: float = 10) -> float:
    """Wait for *true*; gives the seconds it took."""
    began = time.monotonic()
    while not true():
        assert time.monotonic() - began < seconds, f"{what}: not within {seconds} s"
        time.sleep(0.02)
    return time.monotonic() - began


def said(response: httpx.Response) -> dict[str, str]:
    """Our headers on an answer."""
    ours = (*names.DECISION_HEADERS, names.NODE, names.SESSION)
    return {name: response.headers[name] for name in ours if name in response.headers}


def _nodes(pods: list[Pod]) -> list[Json]:
    regions = (("us-east", "US"), ("eu-west", "IE"), ("ap-southeast", "SG"))
    return [
        {
            "address": pod.address,
            **dict(zip(("region", "country"), regions[i % 3], strict=True)),
            "models": list(pod.models),
            "qps_limit": 1000.0,
        }
        for i, pod in enumerate(pods)
    ]


def _settings(mode: str, workers: int, nodes: list[Json], more: Mapping[str, Any]) -> Json:
    port, admin, *others = free_ports(2 + 3 * workers)
    first, health, metrics = others[::workers]
    base: Json = {
        "server": {
            "port": first, "health_port": health, "metrics_port": metrics, "workers": workers, "drain_s": 0.5,
            "deadline_ms": 500,
        },
        "envoy": {
            "host": "127.0.0.1", "port": port, "admin_port": admin, "mode": mode, "message_timeout_ms": 3000,
        },
        "fleet": {"nodes": nodes},
        "rules": {"strategy": "round_robin", "pools": {"general": {"model": "standin"}}},
    }  # fmt: skip
    for section, values in more.items():
        base[section] = {**base.get(section, {}), **values} if isinstance(values, dict) else values
    return base
