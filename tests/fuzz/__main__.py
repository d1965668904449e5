"""`python -m tests.fuzz [SECONDS [TARGET…]]`: every target in turn under atheris, which follows the code's branches.

Not part of any test run: `pip install --no-deps atheris` first. What it finds it prints, with the bytes in hex.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from tests.fuzz.targets import SEEDS, TARGETS


def main() -> int:
    """The exit code says whether every target held."""
    seconds = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    failed = []
    for name in sys.argv[2:] or TARGETS:
        with tempfile.TemporaryDirectory() as corpus:
            for i, seed in enumerate(SEEDS[name]):
                (Path(corpus) / str(i)).write_bytes(seed)
            limits = [f"-max_total_time={seconds}", "-timeout=5", "-max_len=65536", "-rss_limit_mb=2048"]
            print(f"== {name}, {seconds} s", flush=True)
            command = [sys.executable, "-m", "tests.fuzz.one", name, corpus, *limits]
            if subprocess.run(command, check=False).returncode:
                failed.append(name)
    print(f"failed: {', '.join(failed) or 'none'}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
