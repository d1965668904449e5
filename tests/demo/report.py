"""What the demo saw, as tables, and what it claims, each with its number."""

from collections import Counter, defaultdict
from dataclasses import dataclass
from statistics import quantiles

from rich.console import Console
from rich.table import Table

from ext_proc import names
from tests.demo.clients import CONTINENTS
from tests.demo.setting import MODELS, POOLS, Setting, nearest
from tests.demo.traffic import Answer


@dataclass
class Claim:
    """A sentence, whether it held, and the figure that says so."""

    text: str
    held: bool
    figure: str


@dataclass
class Seen:
    """All that was measured."""

    setting: Setting
    routed: list[Answer]
    plain: list[Answer]
    with_us: list[float]
    without: list[float]
    explained: tuple[str, str]
    """Node by the service, node by `isogloss explain`."""


def tables(seen: Seen, out: Console) -> None:
    """Intent × continent, sessions, places, latency."""
    out.print(_where(seen))
    out.print(_latency(seen))


def claims(seen: Seen) -> list[Claim]:
    """The demo's claims, checked."""
    firsts = [answer for answer in seen.routed if answer.turn == 0]
    right = [a for a in firsts if seen.setting.nodes[a.node][1] == pool_of(a.conversation.intent)]
    away, away_plain = cross_region(seen.setting, firsts), cross_region(seen.setting, seen.plain)
    kept, talks = kept_sessions(seen.routed)
    answered = sum(answer.status == 200 for answer in seen.routed)
    named = sum(answer.model == MODELS[seen.setting.nodes[answer.node][1]] for answer in seen.routed)
    told = sum(answer.said.get(names.POOL) == seen.setting.nodes[answer.node][1] for answer in seen.routed)
    p50, p50_plain = (percentiles([a.first_token_s for a in answers])[0] for answers in (seen.routed, seen.plain))
    added = percentiles(seen.with_us)[0] - percentiles(seen.without)[0]
    wrong = {name: seen.setting.counter(name) for name in ("spurious_msgs_received", "rejected_header_mutations")}
    undecided = seen.setting.counter("failure_mode_allowed") + seen.setting.counter("message_timeouts")
    all_ = len(seen.routed)
    return [
        Claim("every request was answered", answered == all_, f"{answered} of {all_}"),
        Claim(
            "≥ 90 % of prompts reach the pool of their intent", len(right) >= 0.9 * len(firsts), share(right, firsts)
        ),
        Claim("≤ 10 % leave the client's nearest region", away <= 0.1, f"{away:.1%}; least-request {away_plain:.1%}"),
        Claim("every turn of a conversation goes to the same pod", kept == talks, f"{kept} of {talks} conversations"),
        Claim("`model: auto` became the model of the pod's pool", named == all_, f"{named} of {all_}"),
        Claim("the client is told the pool it was served by", told == all_, f"{told} of {all_}"),
        Claim(
            # Half the pods are a region away for least request; a busy machine can eat that up, but not turn it round.
            "the median client waits no longer for its first token than without us (10 % for a busy machine)",
            p50 < 1.1 * p50_plain,
            f"{p50 * 1000:.0f} ms against {p50_plain * 1000:.0f} ms",
        ),
        Claim("distance aside, we add at most 20 ms at the median (texts never seen)", added <= 0.020, ms(added)),
        Claim("Envoy found no answer of ours out of place", not any(wrong.values()), f"{sum(wrong.values())}"),
        Claim("no request went undecided", undecided == 0, f"{undecided}"),
        Claim("`isogloss explain` names the pod the service chose", len(set(seen.explained)) == 1, seen.explained[1]),
    ]


def verdict(found: list[Claim], out: Console) -> bool:
    """Print them; True when all held."""
    table = Table(title="What we claim", title_justify="left", box=None, show_header=False, padding=(0, 1))
    for claim in found:
        table.add_row("[green]✓" if claim.held else "[red]✗", claim.text, claim.figure)
    out.print(table)
    return all(claim.held for claim in found)


def pool_of(intent: str) -> str:
    """The pool an intent belongs to."""
    return next((pool for pool, intents in POOLS.items() if intent in intents), "general")


def cross_region(setting: Setting, answers: list[Answer]) -> float:
    """Share of answers from another region than the client's nearest."""
    away = [
        answer
        for answer in answers
        if setting.nodes[answer.node][0]
        != nearest(answer.conversation.client.latitude, answer.conversation.client.longitude)
    ]
    return len(away) / len(answers)


def kept_sessions(answers: list[Answer]) -> tuple[int, int]:
    """Conversations of several turns that stayed on one pod, and all of them."""
    nodes: dict[int, set[str]] = defaultdict(set)
    for answer in answers:
        if len(answer.conversation.turns) > 1:
            nodes[id(answer.conversation)].add(answer.node)
    return sum(len(used) == 1 for used in nodes.values()), len(nodes)


def percentiles(times: list[float]) -> tuple[float, float]:
    """p50 and p99."""
    cuts = quantiles(times, n=100, method="inclusive")
    return cuts[49], cuts[98]


def share(some: list[Answer], all_: list[Answer]) -> str:
    """In percent and in numbers."""
    return f"{len(some) / len(all_):.1%} ({len(some)} of {len(all_)})"


def ms(seconds: float) -> str:
    """In milliseconds."""
    return f"{seconds * 1000:.1f} ms"


def _where(seen: Seen) -> Table:
    # Two lines a cell, so that it fits 120 columns; on 80 the names break, and none is cut.
    title = "Who was sent where: region and pool most chosen, and how often"
    table = Table(title=title, title_justify="left", padding=(0, 0, 0, 1))
    for name in ("intent", *CONTINENTS.values()):
        table.add_column(name, overflow="fold")
    cells: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for answer in seen.routed:
        where = "\n".join(seen.setting.nodes[answer.node])
        cells[answer.conversation.intent, answer.conversation.client.continent][where] += 1
    for intent in sorted({intent for intent, _ in cells}):
        row = []
        for code in CONTINENTS:
            counted = cells[intent, code]
            node, times = counted.most_common(1)[0] if counted else ("–", 0)
            row.append(f"{node} {times}/{counted.total()}")
        table.add_row(intent, *row)
    return table


def _latency(seen: Seen) -> Table:
    table = Table(title="Time to first token", title_justify="left")
    for column in ("", "p50", "p99", "cross-region"):
        table.add_column(column, justify="left" if not column else "right")
    rows = (
        ("clients all over the world, Isogloss", [a.first_token_s for a in seen.routed], seen.routed),
        ("the same, Envoy's least-request alone", [a.first_token_s for a in seen.plain], seen.plain),
        ("one client, no distance, Isogloss in the path", seen.with_us, None),
        ("the same, Envoy alone", seen.without, None),
    )
    for name, times, answers in rows:
        p50, p99 = percentiles(times)
        away = "" if answers is None else f"{cross_region(seen.setting, answers):.1%}"
        table.add_row(name, ms(p50), ms(p99), away)
    return table
