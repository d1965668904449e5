"""The demo's world: six pods in three regions, the service, and an Envoy with a second door that asks nobody."""

import copy
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

from ext_proc import config as configuration
from ext_proc import envoy
from tests.demo.clients import write_database
from tests.e2e.processes import Process, listens
from tests.standin.engine import Engine
from tests.standin.pod import Pod, kilometres
from tests.standin.running import Loop, free_ports, running

REGIONS = {"us-east": (39.04, -77.49, "NA"), "eu-west": (53.35, -6.26, "EU"), "ap-southeast": (1.35, 103.82, "AS")}
POOLS = {"code": ("coding", "math"), "general": ()}
MODELS = {"code": "standin-coder", "general": "standin-chat"}
SPEEDS = {"us-east": 220.0, "eu-west": 180.0, "ap-southeast": 140.0}
"""Tokens a second."""


@dataclass
class Setting:
    """Everything running."""

    config: Path
    url: str
    plain_url: str
    """The same pods by Envoy's own least-request, without us."""
    admin_url: str
    nodes: dict[str, tuple[str, str]]
    """Region and pool of each address."""
    service: Process
    pods: list[Pod]
    loop: Loop

    def restart(self, strategy: str) -> None:
        """The service anew, with another strategy and nothing learnt; back when Envoy asks it again."""
        settings = yaml.safe_load(self.config.read_text())
        settings["rules"]["strategy"] = strategy
        path = self.config.with_name("trouble.yaml")
        path.write_text(yaml.safe_dump(settings, sort_keys=False))
        self.service.kill()
        while _asks(self):
            time.sleep(0.05)
        self.service = _serve(path)
        self.service.until(lambda: _asks(self), "isogloss", 60)

    def counter(self, name: str) -> int:
        """One of Envoy's ext_proc counters."""
        page = httpx.get(f"{self.admin_url}/stats", params={"format": "json", "filter": "ext_proc"}).json()
        return sum(stat["value"] for stat in page["stats"] if stat.get("name", "").endswith(f".{name}"))


@contextmanager
def setting(folder: Path) -> Iterator[Setting]:
    """Start it; on leaving everything is stopped."""
    ports = free_ports(12)
    pods = [
        Pod(
            f"127.0.0.1:{ports.pop()}",
            models=(MODELS[pool],),
            latitude=latitude,
            longitude=longitude,
            engine=Engine(tokens_per_s=SPEEDS[region]),
        )
        for region, (latitude, longitude, _) in REGIONS.items()
        for pool in POOLS
    ]
    places = [(region, pool) for region in REGIONS for pool in POOLS]
    nodes = dict(zip((pod.address for pod in pods), places, strict=True))
    write_database(folder / "places.mmdb")
    path = folder / "isogloss.yaml"
    path.write_text(yaml.safe_dump(_isogloss(pods, nodes, ports), sort_keys=False))
    config = configuration.load(path)
    with ExitStack() as stack:
        loop = stack.enter_context(running(pods))
        service = _serve(path)
        service.until(lambda: listens(config.server.port), "isogloss", 120)
        proxy = _envoy(config, folder, ports[-1])
        stack.callback(proxy.end)
        proxy.until(lambda: listens(config.envoy.port), "envoy")
        made = Setting(
            config=path,
            url=f"http://127.0.0.1:{config.envoy.port}",
            plain_url=f"http://127.0.0.1:{ports[-1]}",
            admin_url=f"http://127.0.0.1:{config.envoy.admin_port}",
            nodes=nodes,
            service=service,
            pods=pods,
            loop=loop,
        )
        stack.callback(lambda: made.service.end())  # noqa: PLW0108 - by then it may be another
        proxy.until(lambda: _asks(made), "envoy's health check of isogloss")
        yield made


def _serve(config: Path) -> Process:
    command = [sys.executable, "-m", "ext_proc.cli", "serve", "--config", config]
    return Process(command, config.with_name("isogloss.log"))


def nearest(latitude: float, longitude: float) -> str:
    """The region next to a client."""
    return min(REGIONS, key=lambda region: kilometres(latitude, longitude, *REGIONS[region][:2]))


def _isogloss(pods: list[Pod], nodes: dict[str, tuple[str, str]], ports: list[int]) -> dict[str, Any]:
    return {
        "server": {"port": ports[0], "health_port": ports[1], "metrics_port": ports[2]},
        "envoy": {"host": "127.0.0.1", "port": ports[3], "admin_port": ports[4]},
        "places": {"databases": ["places.mmdb"], "trusted_hops": 1},
        "rules": {
            "pools": {pool: {"model": MODELS[pool], "intents": list(POOLS[pool])} for pool in POOLS},
            "general": "general",
            "fallbacks": 2,  # this Envoy follows a list; some gateways read one address only
        },
        "fleet": {
            "nodes": [
                {
                    "address": pod.address,
                    "region": nodes[pod.address][0],
                    "continent": REGIONS[nodes[pod.address][0]][2],
                    "latitude": pod.latitude,
                    "longitude": pod.longitude,
                    "pool": nodes[pod.address][1],
                    "models": list(pod.models),
                    "qps_limit": 30.0,
                }
                for pod in pods
            ]
        },
    }


def _envoy(config: configuration.Config, folder: Path, plain_port: int) -> Process:
    """Our configuration and, beside it, the same listener without the ext_proc filter."""
    tree = yaml.safe_load(envoy.render(config, folder / "access.jsonl"))
    listeners = tree["static_resources"]["listeners"]
    plain = copy.deepcopy(listeners[0])
    plain["name"] = "plain"
    plain["address"]["socket_address"]["port_value"] = plain_port
    manager = plain["filter_chains"][0]["filters"][0]["typed_config"]
    manager["stat_prefix"] = "plain"
    manager["http_filters"] = manager["http_filters"][1:]
    listeners.append(plain)
    path = folder / "envoy.yaml"
    path.write_text(yaml.safe_dump(tree, sort_keys=False))
    command = [envoy.binary(), "-c", path, "--use-dynamic-base-id", "--concurrency", "1", "-l", "warning"]
    return Process(command, folder / "envoy.log")


def _asks(made: Setting) -> bool:
    stats = httpx.get(f"{made.admin_url}/stats", params={"filter": "cluster.isogloss.membership_healthy"}).text
    return stats.strip().endswith(": 1")
