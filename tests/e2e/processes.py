"""Programs under test: started with a log of their own, waited for, and surely ended."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SERVE = [sys.executable, "-m", "ext_proc.cli", "serve", "--config"]


class Process:
    """One program; *log* holds everything it said."""

    def __init__(self, command: Sequence[str | Path], log: Path) -> None:
        self.log = log
        with log.open("ab") as out:
            # A session of its own: a shell that ends must not take Envoy along with a SIGTERM to its group.
            self._popen = subprocess.Popen(
                [str(part) for part in command],
                stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, cwd=ROOT, start_new_session=True,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )  # fmt: skip

    @property
    def pid(self) -> int:
        """Of the program itself."""
        return self._popen.pid

    @property
    def alive(self) -> bool:
        """Still running."""
        return self._popen.poll() is None

    def send(self, sig: signal.Signals) -> None:
        """A signal to the program and its children (workers)."""
        if self.alive:
            os.killpg(self.pid, sig)

    def wait(self, seconds: float) -> int:
        """Its exit code."""
        return self._popen.wait(seconds)

    def end(self, seconds: float = 10) -> None:
        """SIGTERM, and SIGKILL for who does not listen."""
        self.send(signal.SIGTERM)
        try:
            self._popen.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """As a crash would end it."""
        self.send(signal.SIGKILL)
        self._popen.wait(10)

    def until(self, ready: Callable[[], bool], what: str, seconds: float = 60) -> None:
        """Wait for *ready*; a program that ends meanwhile fails with its log."""
        give_up = time.monotonic() + seconds
        while not ready():
            if not self.alive:
                raise AssertionError(f"{what}: it ended with {self._popen.returncode}\n{self.said()}")
            if time.monotonic() > give_up:
                raise AssertionError(f"{what}: not within {seconds} s\n{self.said()}")
            time.sleep(0.02)

    def said(self, last: int = 4000) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-last:]


def listens(where: int | Path) -> bool:
    """Somebody accepts connections on that port or Unix socket."""
    unix = isinstance(where, Path)
    with socket.socket(socket.AF_UNIX if unix else socket.AF_INET) as sock:
        sock.settimeout(0.5)
        return sock.connect_ex(str(where) if unix else ("127.0.0.1", where)) == 0


def listener(port: int) -> int:
    """The process that listens on *port*."""
    wanted = f":{port:04X}"
    rows = [line.split() for name in ("tcp", "tcp6") for line in Path("/proc/net", name).read_text().splitlines()]
    sockets = {f"socket:[{row[9]}]" for row in rows if row[1].endswith(wanted) and row[3] == "0A"}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # gone meanwhile, or not ours to see
            if any(os.readlink(fd) in sockets for fd in (process / "fd").iterdir()):
                return int(process.name)
    raise AssertionError(f"nobody listens on {port}")
