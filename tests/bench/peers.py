"""Other routers beside us: `vllm-router` and `smg`, both Rust, in an environment of their own.

Both are proxies themselves: a request goes client → router → pod, without Envoy. Neither reads meaning or place.
"""

import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.e2e.processes import ROOT
from tests.standin.running import free_ports

PINS = ("vllm-router==0.1.17", "smg==1.13.0")
FOLDER = ROOT / ".venv-peers"
POLICY = "cache_aware"  # the default of both

Start = Callable[[str, list[Any], int], object]
"""Name, command, the port it will listen on."""


def start(run: Start, pods: list[int]) -> Mapping[str, int]:
    """Their ports by name, each before the same *pods*."""
    binaries = _installed()
    workers = ["--worker-urls", *(f"http://127.0.0.1:{pod}" for pod in pods)]
    ours: dict[str, int] = {}
    for name, command in (("vllm-router", []), ("smg", ["launch"])):
        port, metrics = free_ports(2)
        options = ["--host", "127.0.0.1", "--port", str(port), "--prometheus-port", str(metrics), "--policy", POLICY]
        run(name, [binaries / name, *command, *options, *workers], port)
        ours[name] = port
    return ours


def _installed() -> Path:
    """Where their programs are; made once."""
    if not (FOLDER / "bin/smg").exists():
        print(f"installing {', '.join(PINS)} into {FOLDER}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", FOLDER], check=True)
        subprocess.run([FOLDER / "bin/pip", "install", "--quiet", *PINS], check=True)
    return FOLDER / "bin"
