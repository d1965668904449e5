"""`python -m tests.bench.path`: the whole way through a real Envoy, with Isogloss, with a no-op, and with neither.

All targets run at once and are measured in turns, in random order, several rounds: read the ratios, which share the
machine's noise, not the milliseconds.
"""

import argparse
import itertools
import json
import random
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import uvloop
import yaml
from rich.console import Console
from rich.table import Table

from ext_proc import config as configuration
from ext_proc import envoy
from tests.bench import peers
from tests.bench.client import Run, load, post
from tests.e2e.processes import ROOT, Process, listens
from tests.standin.running import free_ports

MODES = ("buffered", "duplex", "headers")
WORDS = (ROOT / "models/data/seeds.jsonl").read_text().split()
PROMPT_BYTES = 600
LARGE_BYTES = 220_000


def prompt(number: int, size: int) -> bytes:
    """A chat request of about *size* bytes; another number, another text."""
    words = random.Random(number)
    text = f"{number} "
    while len(text) < size - 80:
        text += words.choice(WORDS).replace('"', "").replace("\\", "") + " "
    message = {"model": "bench", "messages": [{"role": "user", "content": text[: size - 80]}]}
    return post(json.dumps(message, ensure_ascii=False).encode(), f"x-session-id: bench-{number % 256}")


def warm() -> Iterator[bytes]:
    """The same 64 prompts over and over."""
    return itertools.cycle([prompt(i, PROMPT_BYTES) for i in range(64)])


def cold() -> Iterator[bytes]:
    """Never the same text twice, each longer than the encoder's 64 tokens."""
    return (prompt(random.getrandbits(60), PROMPT_BYTES) for _ in itertools.count())


def large() -> Iterator[bytes]:
    """220 KB prompts, 16 of them."""
    return itertools.cycle([prompt(i, LARGE_BYTES) for i in range(16)])


class Targets:
    """Pods, services and an Envoy for each way."""

    def __init__(self, stack: ExitStack, folder: Path, *, with_peers: bool = False) -> None:
        self._stack, self._folder = stack, folder
        pods = free_ports(4)
        self._start("pods", [sys.executable, "-m", "tests.bench.pod", *map(str, pods)], pods[0])
        noop, service, health, metrics = free_ports(4)
        self._settings: dict[str, Any] = {
            "server": {"port": service, "health_port": health, "metrics_port": metrics},
            "fleet": {
                "nodes": [{"address": f"127.0.0.1:{pod}", "models": ["bench"], "qps_limit": 1e6} for pod in pods]
            },
        }
        self._start("noop", [sys.executable, "-m", "tests.bench.noop", str(noop)], noop)
        path = folder / "isogloss.yaml"
        path.write_text(yaml.safe_dump(self._settings))
        self.service = self._start(
            "isogloss", [sys.executable, "-m", "ext_proc.cli", "serve", "--config", path], service
        )
        self.ports = {"Envoy alone": self._envoy("alone", None, None)}
        for mode in MODES:
            self.ports[f"no-op, {mode}"] = self._envoy(f"noop-{mode}", mode, noop)
            self.ports[f"Isogloss, {mode}"] = self._envoy(f"isogloss-{mode}", mode, service)
        if with_peers:
            self.ports |= peers.start(self._start, pods)

    def memory_mb(self) -> float:
        """Resident memory of the service."""
        status = Path(f"/proc/{self.service.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024

    def _envoy(self, name: str, mode: str | None, port: int | None) -> int:
        front, admin = free_ports(2)
        settings = json.loads(json.dumps(self._settings))
        settings["envoy"] = {"host": "127.0.0.1", "port": front, "admin_port": admin, "mode": mode or "buffered"}
        settings["server"]["port"] = port or settings["server"]["port"]
        made = yaml.safe_load(envoy.render(configuration.parse(yaml.safe_dump(settings).encode())))
        resources = made["static_resources"]
        if mode is None:
            manager = resources["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
            manager["http_filters"] = [f for f in manager["http_filters"] if "ext_proc" not in f["name"]]
        for cluster in resources["clusters"]:
            if port != self._settings["server"]["port"]:
                cluster.pop("health_checks", None)  # the no-op has no health service
        path = self._folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump(made))
        command = [envoy.binary(), "-c", path, "--use-dynamic-base-id", "--concurrency", "1", "-l", "warning"]
        self._start(name, command, front)
        return front

    def _start(self, name: str, command: list[Any], port: int) -> Process:
        process = Process(command, self._folder / f"{name}.log")
        self._stack.callback(process.kill)
        process.until(lambda: listens(port), name)
        return process


def measure(
    targets: dict[str, int], requests: Callable[[], Iterator[bytes]], *, connections: int, seconds: float, rounds: int
) -> dict[str, Run]:
    """Medians over the rounds."""
    runs: dict[str, list[Run]] = {name: [] for name in targets}
    for number in range(-1, rounds):
        for name in random.sample(sorted(targets), len(targets)):
            run = uvloop.run(load(targets[name], requests(), connections=connections, seconds=seconds))
            if number >= 0:  # the first round warms up
                runs[name].append(run)
    return {
        name: Run(*(statistics.median(column) for column in zip(*some, strict=True))) for name, some in runs.items()
    }


def show(console: Console, title: str, found: dict[str, Run]) -> None:
    """One table, ratios to Envoy alone and to the no-op of the same mode."""
    table = Table("", "requests/s", "p50 ms", "p99 ms", "p50 ÷ no-op", "rate ÷ Envoy alone", "not 200", title=title)
    for name, run in found.items():
        base = found.get(name.replace("Isogloss", "no-op"))
        ratio = f"{run.p50_ms / base.p50_ms:.2f}" if base is not None and base is not run else ""
        share = f"{run.rate / found['Envoy alone'].rate:.2f}"
        table.add_row(
            name, f"{run.rate:,.0f}", f"{run.p50_ms:.2f}", f"{run.p99_ms:.2f}", ratio, share, f"{run.failed:g}"
        )
    console.print(table)


def main(arguments: list[str] | None = None) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--peers", action="store_true", help="vllm-router and smg beside us")
    options = parser.parse_args(arguments)
    console = Console(width=120)
    every = {"seconds": options.seconds, "rounds": options.rounds}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        targets = Targets(stack, folder, with_peers=options.peers)
        one = measure(targets.ports, warm, connections=1, **every)
        show(console, "warm: 0.6 KB, texts seen before, 1 connection", one)
        buffered = {n: p for n, p in targets.ports.items() if "headers" not in n}
        new = measure(buffered, cold, connections=1, **every)
        show(console, "cold: 0.6 KB, every text new (one encode of 64 tokens), 1 connection", new)
        for mode in ("buffered", "duplex"):
            added = new[f"Isogloss, {mode}"].p50_ms - new[f"no-op, {mode}"].p50_ms
            console.print(f"cold, {mode}: {added:.1f} ms added to the no-op's p50")
        show(console, "0.6 KB, 16 connections", measure(targets.ports, warm, connections=16, **every))
        show(console, "220 KB, 20 connections", measure(buffered, large, connections=20, **every))
        console.print(f"resident memory of the service afterwards: {targets.memory_mb():.0f} MB")


if __name__ == "__main__":
    main()
