"""Part two: one pod slow, one gone, one region short of seats; and what each strategy makes of it."""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from tests.demo.report import Claim, cross_region, ms, percentiles
from tests.demo.setting import Setting
from tests.demo.traffic import Answer, Conversation, send

STRATEGIES = (
    "round_robin", "least_request", "power_of_two", "peak_ewma", "prequal", "router_balancing", "time_to_first_token",
)  # fmt: skip
DEFAULT = STRATEGIES[-1]
PROMPTS = 160


class Trouble(NamedTuple):
    """What one strategy made of it."""

    strategy: str
    answers: list[Answer]


def befall(here: Setting) -> str:
    """From now on things are wrong; says what."""
    by_place = {place: pod for pod in here.pods for place in [here.nodes[pod.address]]}
    slow, gone = by_place["eu-west", "general"], by_place["us-east", "code"]
    slow.engine.prefill_tokens_per_s /= 50
    slow.engine.tokens_per_s /= 10
    here.loop.do(gone.stop())
    for pool in ("general", "code"):
        by_place["ap-southeast", pool].engine.set_seats(2)
    return "eu-west general ten times slower, us-east code gone, ap-southeast with two seats a pod"


def measure(here: Setting, talks: list[Conversation], tick: Callable[[], None]) -> list[Trouble]:
    """The same single prompts under each strategy, which starts knowing nothing."""
    alone = [Conversation(talk.intent, talk.turns[:1], talk.client, talk.address) for talk in talks[:PROMPTS]]
    out = []
    for strategy in STRATEGIES:
        here.restart(strategy)
        out.append(Trouble(strategy, asyncio.run(send(here.url, alone, tick, routed=True))))
    return out


def table(what: str, seen: list[Trouble], here: Setting) -> Table:
    """A line a strategy."""
    made = Table(title=f"In trouble: {what}", title_justify="left")
    for column in ("strategy", "answered", "p50", "p95", "p99", "cross-region"):
        made.add_column(column, justify="left" if column == "strategy" else "right")
    for trouble in seen:
        times = sorted(answer.first_token_s for answer in trouble.answers)
        p50, p99 = percentiles(times)
        made.add_row(
            trouble.strategy + (" (default)" if trouble.strategy == DEFAULT else ""),
            f"{_answered(trouble)} of {len(trouble.answers)}",
            ms(p50),
            ms(times[int(len(times) * 0.95)]),
            ms(p99),
            f"{cross_region(here, trouble.answers):.1%}",
        )
    return made


def claims(seen: list[Trouble]) -> list[Claim]:
    """What must hold in trouble too."""
    every = all(_answered(trouble) == len(trouble.answers) for trouble in seen)
    mean = {t.strategy: sum(a.first_token_s for a in t.answers) / len(t.answers) for t in seen}
    return [
        Claim("in trouble every request is answered, whatever the strategy", every, f"{len(seen)} strategies"),
        Claim(
            "in trouble the default's mean wait is under round robin's",
            mean[DEFAULT] < mean["round_robin"],
            f"{ms(mean[DEFAULT])} against {ms(mean['round_robin'])}",
        ),
    ]


def show(what: str, seen: list[Trouble], here: Setting, out: Console) -> None:
    """Print it."""
    out.print(table(what, seen, here))


def _answered(trouble: Trouble) -> int:
    return sum(answer.status == 200 for answer in trouble.answers)
