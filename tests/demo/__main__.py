"""Run the demo: exit status 0 when every claim held."""

import argparse
import asyncio
import json
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ext_proc import names
from tests.demo import report, traffic, trouble
from tests.demo.clients import networks
from tests.demo.setting import Setting, setting

ROUNDS = 65
PROMPT = "Write a Python function that returns the longest palindrome in a string"
ADDRESS = "129.132.4.7"


def main() -> int:
    """Set up, send, show, judge."""
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave everything running until Ctrl-C")
    options = parser.parse_args()
    # A plain SIGTERM would leave service and Envoy behind: end as on Ctrl-C, with everything put away.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    out = Console(width=None if sys.stdout.isatty() else 160)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="isogloss-demo-") as folder:
        out.print("[bold]Isogloss[/]: starting six stand-in pods, the service and Envoy …")
        with setting(Path(folder)) as here:
            seen = _measure(here, out)
            report.tables(seen, out)
            _explain(here, out)
            what, troubles = _trouble(here, out)
            trouble.show(what, troubles, here, out)
            held = report.verdict([*report.claims(seen), *trouble.claims(troubles)], out)
            out.print(f"{'Every claim held' if held else 'Not every claim held'}, in {time.monotonic() - began:.0f} s.")
            if options.keep:
                _keep(here, out)
    return 0 if held else 1


def _measure(here: Setting, out: Console) -> report.Seen:
    talks = traffic.conversations()
    requests = sum(len(talk.turns) for talk in talks)
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=out) as bar:
        jobs = [
            bar.add_task("prompts from all over the world, through Isogloss", total=requests),
            bar.add_task("the same without it", total=requests),
            bar.add_task("one client, no distance, with and without", total=ROUNDS),
        ]

        async def all_of_it() -> tuple[list[traffic.Answer], list[traffic.Answer], tuple[list[float], list[float]]]:
            routed = await traffic.send(here.url, talks, lambda: bar.advance(jobs[0]), routed=True)
            plain = await traffic.send(here.plain_url, talks, lambda: bar.advance(jobs[1]), routed=False)
            times = await traffic.in_path(here.url, here.plain_url, ROUNDS, lambda: bar.advance(jobs[2]))
            return routed, plain, times

        routed, plain, (with_us, without) = asyncio.run(all_of_it())
    return report.Seen(here, routed, plain, with_us, without, _twice(here))


def _trouble(here: Setting, out: Console) -> tuple[str, list[trouble.Trouble]]:
    talks = traffic.conversations()
    total = min(trouble.PROMPTS, len(talks)) * len(trouble.STRATEGIES)
    what = trouble.befall(here)
    with Progress(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), console=out) as bar:
        job = bar.add_task("pods in trouble, strategy by strategy", total=total)
        return what, trouble.measure(here, talks, lambda: bar.advance(job))


def _twice(here: Setting) -> tuple[str, str]:
    """The same question to the service and to `isogloss explain`: the nodes they name."""
    body = {"model": "auto", "messages": [{"role": "user", "content": PROMPT}], "max_tokens": 1}
    answer = httpx.post(f"{here.url}/v1/chat/completions", json=body, headers={"x-forwarded-for": ADDRESS}, timeout=60)
    said = subprocess.run([*_command(here), "--json"], capture_output=True, text=True, check=True).stdout
    return answer.headers[names.NODE], json.loads(said)["answer"]["headers"][names.ENDPOINT].split(",")[0]


def _explain(here: Setting, out: Console) -> None:
    campus = next(network for network in networks() if network.cidr.startswith("129.132."))
    out.print(f"\n[bold]One decision, line by line[/]: {PROMPT!r}, asked at {campus.name}, {campus.city}")
    # Printed by the command itself, so that what is seen here is what an operator sees.
    out.file.flush()
    subprocess.run(_command(here), check=True)
    out.print()


def _command(here: Setting) -> list[str]:
    return [
        sys.executable, "-m", "ext_proc.cli", "explain", "--config", str(here.config), "--prompt", PROMPT,
        "--ip", ADDRESS,
    ]  # fmt: skip


def _keep(here: Setting, out: Console) -> None:
    asked = {"model": "auto", "messages": [{"role": "user", "content": PROMPT}], "max_tokens": 8}
    body, streamed = json.dumps(asked), json.dumps(asked | {"stream": True})
    curl = f"curl -si {here.url}/v1/chat/completions -H 'content-type: application/json' -d '{body}'"
    out.print("\n[bold]Still running[/]; Ctrl-C ends it. Try, and look at the x-isogloss-* headers:\n")
    for name, address in (("Tokyo", "133.11.5.5"), ("Cape Town", "137.158.9.9"), ("Geneva", "137.138.1.1")):
        print(f"# from {name}\n{curl} -H 'x-forwarded-for: {address}'\n")
    print(f"# the same conversation again\n{curl} -H 'x-session-id: my-session'\n")
    print(f"# streamed\n{curl.replace('-si', '-sN').replace(body, streamed)}\n")
    print(f"# Envoy's counters\ncurl -s '{here.admin_url}/stats?filter=ext_proc'\n")
    print(f"# explain\nisogloss explain --config {here.config} --prompt '{PROMPT}' --ip 133.11.5.5")
    try:
        while here.service.alive:
            time.sleep(1)
    except KeyboardInterrupt:
        out.print("stopping …")


if __name__ == "__main__":
    sys.exit(main())
