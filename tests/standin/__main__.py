"""Stand-in pods from a shell: `python -m tests.standin 8001 8002 --model some-name`; Ctrl-C ends them."""

import argparse
import asyncio
import contextlib

from tests.standin.engine import Engine
from tests.standin.pod import Pod


async def main() -> None:
    """Listen until interrupted."""
    parser = argparse.ArgumentParser(prog="python -m tests.standin", description=__doc__)
    parser.add_argument("port", type=int, nargs="+")
    parser.add_argument("--model", action="append", help="a served model name; several: aliases")
    parser.add_argument("--speed", type=float, default=200.0, help="tokens a second")
    parser.add_argument("--seats", type=int, default=16, help="requests decoded at once")
    options = parser.parse_args()
    for port in options.port:
        engine = Engine(tokens_per_s=options.speed, seats=options.seats)
        await Pod(f"127.0.0.1:{port}", models=tuple(options.model or ["standin"]), engine=engine).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main())
