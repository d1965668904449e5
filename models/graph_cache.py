"""The built ONNX graph, kept on disk and proved on every load."""

from __future__ import annotations

import fcntl
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

from models.embedder import Precision
from models.errors import GraphRefused
from models.files import digest, replace
from models.weights import Weights

BUILDER = 2
"""Version of the arithmetic in onnx_graph.py: raise it, and every cached graph is built anew."""

log = logging.getLogger(__name__)


class GraphManifest(Struct, frozen=True, forbid_unknown_fields=True):
    """What a cached graph was built from, and what it is."""

    builder: int
    weights: str
    """SHA-256 of the weights it was built from."""
    layer: int
    precision: Precision
    pooling: str
    graph: str
    """SHA-256 of the graph file."""


def default_directory() -> Path:
    """`$XDG_CACHE_HOME/isogloss`, or `~/.cache/isogloss`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "isogloss"


def graph(weights: Weights, layer: int, precision: Precision, cache: Path) -> bytes:
    """The graph's bytes, verified; built first (about 10 s) when missing or damaged.

    The caller gets the very bytes that were hashed. A cache filled beforehand may be read-only.
    Raises GraphRefused.
    """
    path = cache / f"{weights.weights[:16]}-{weights.pooling}-l{layer}-{precision}-b{BUILDER}.onnx"
    try:
        return _load(path, weights, layer, precision)
    except GraphRefused as reason:
        first_reason = reason
    with _alone(path.with_suffix(".lock")):
        try:
            return _load(path, weights, layer, precision)  # another worker built it while we waited
        except GraphRefused:
            # A first start is no news; a damaged file is.
            log.log(logging.WARNING if path.exists() else logging.INFO, "building %s: %s", path, first_reason)
        _build(path, weights, layer, precision)
        return _load(path, weights, layer, precision)


def _manifest_of(path: Path) -> Path:
    return path.with_suffix(".json")


def _load(path: Path, weights: Weights, layer: int, precision: Precision) -> bytes:
    try:
        manifest = msgspec.json.decode(_manifest_of(path).read_bytes(), type=GraphManifest)
        data = path.read_bytes()
    except (OSError, msgspec.MsgspecError) as exc:
        raise GraphRefused(f"{path}: no usable graph ({exc})") from exc
    expected = GraphManifest(BUILDER, weights.weights, layer, precision, weights.pooling, digest(data))
    for field in GraphManifest.__struct_fields__:
        told, found = getattr(manifest, field), getattr(expected, field)
        if told != found:
            raise GraphRefused(f"{path}: {field} is {found}, its manifest says {told}")
    return data


def _build(path: Path, weights: Weights, layer: int, precision: Precision) -> None:
    """In a process of its own, so that what a build needs in memory ends with it."""
    command = [
        sys.executable,
        "-m",
        "models.onnx_graph",
        "--out",
        str(path),
        "--model",
        str(weights.directory),
    ]
    command += ["--layer", str(layer), "--precision", precision]
    here = str(Path(__file__).resolve().parent.parent)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([here, *filter(None, [os.environ.get("PYTHONPATH")])]),
    }
    done = subprocess.run(  # noqa: S603  our own module, no shell
        command, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise GraphRefused(f"{path}: building the graph failed: {done.stderr.strip()[-2000:]}")
    manifest = GraphManifest(BUILDER, weights.weights, layer, precision, weights.pooling, digest(path.read_bytes()))
    replace(_manifest_of(path), msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n")


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """One builder at a time on this machine; the kernel lets go of the lock if we die."""
    try:
        lock.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as exc:
        raise GraphRefused(
            f"{lock.parent}: {exc.strerror}. Set encoder.cache_dir to a directory that can be written,"
            " or fill it beforehand by starting once where it can"
        ) from exc
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
