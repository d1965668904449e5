"""Real worker processes: their deaths, their supervisor's, and mistakes that no second start mends."""

import asyncio
import os
import signal
import socket
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

from ext_proc.workers import SERVING, Supervisor
from tests.e2e.processes import SERVE, Process, listener, listens
from tests.e2e.world import until
from tests.standin.running import free_ports


def written(folder: Path, **server: Any) -> tuple[Path, dict[str, int]]:
    """isogloss.yaml for two workers on free ports."""
    first = free_ports(8)[0]
    ports = {"port": first, "health_port": first + 2, "metrics_port": first + 4}
    path = folder / "isogloss.yaml"
    settings = {
        "server": {"workers": 2, "drain_s": 0, **ports, **server},
        "envoy": {"port": first + 6, "admin_port": first + 7},
    }
    path.write_text(yaml.safe_dump(settings))
    return path, ports


def gone(pid: int) -> bool:
    """No such process, or one that only waits to be buried."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_killing_the_supervisor_leaves_no_worker_behind(tmp_path: Path) -> None:
    path, ports = written(tmp_path)
    service = Process([*SERVE, path], tmp_path / "log")
    service.until(lambda: listens(ports["metrics_port"]) and listens(ports["metrics_port"] + 1), "two workers")
    workers = [listener(ports["port"] + i) for i in range(2)]
    os.kill(service.pid, signal.SIGKILL)  # it alone, not its group
    until(lambda: all(map(gone, workers)), "the workers' end", 10)
    service.wait(1)
    assert "Traceback" not in service.said(100_000)


def test_a_worker_that_dies_is_started_again(tmp_path: Path) -> None:
    path, ports = written(tmp_path)
    service = Process([*SERVE, path], tmp_path / "log")
    try:
        service.until(lambda: listens(ports["metrics_port"]) and listens(ports["metrics_port"] + 1), "two workers")
        first = listener(ports["port"])
        os.kill(first, signal.SIGKILL)
        until(lambda: "started again in 1 s" in service.said(), "the word of its death", 10)
        until(lambda: listens(ports["metrics_port"]), "another", 30)
        assert listener(ports["port"]) != first
    finally:
        service.end()
    assert service.wait(1) == 0


def test_a_mistake_no_worker_can_start_with_ends_the_service(tmp_path: Path) -> None:
    path, ports = written(tmp_path)
    with socket.create_server(("127.0.0.1", ports["port"])), socket.create_server(("127.0.0.1", ports["port"] + 1)):
        service = Process([*SERVE, path], tmp_path / "log")
        assert service.wait(60) == 1
    said = service.said()
    assert "server.port: cannot listen" in said
    assert "no worker came up" in said
    assert "Traceback" not in said


SCRIPT = f"""
import sys, time
worker, log = sys.argv[-1], sys.argv[1]
open(log, "a").write(f"{{worker}} {{time.time()}}\\n")
if worker == "0":
    sys.exit(3)
sys.stdout.buffer.write({SERVING!r}); sys.stdout.flush()
sys.stdin.read()
"""


async def test_who_ends_again_and_again_is_started_ever_more_seldom(tmp_path: Path, monkeypatch) -> None:
    """And the others go on."""
    pause = 0.1
    monkeypatch.setattr("ext_proc.workers.FIRST_S", pause)
    monkeypatch.setattr("ext_proc.workers.LONGEST_S", 8 * pause)
    log = tmp_path / "log"
    supervisor = Supervisor(["-c", SCRIPT, str(log)], 2)
    running = asyncio.ensure_future(supervisor.run())
    await asyncio.sleep(4)
    os.kill(os.getpid(), signal.SIGTERM)
    assert await running == 0
    lines = [line.split() for line in log.read_text().splitlines()]
    starts = [float(when) for worker, when in lines if worker == "0"]
    assert [worker for worker, _ in lines].count("1") == 1
    gaps = [b - a for a, b in pairwise(starts)]
    assert 4 <= len(gaps) <= 8, gaps
    assert gaps[2] > gaps[0] + pause
    assert max(gaps) < 8 * pause + 1
