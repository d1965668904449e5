"""`isogloss simulate`: the scenarios over several seeds and cores, their tables, bars and plots."""

import multiprocessing
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from rich.console import Console
from rich.table import Table

from ext_proc.errors import ConfigError
from ext_proc.yamlfile import decode
from policy.rules import FirstToken
from policy.simulate.results import held, interval
from policy.simulate.run import simulate
from policy.simulate.scenario import Line, Scenario
from policy.simulate.work import Recorded

SHOWN = (
    "success", "within goal", "throughput", "ttft mean", "ttft p99", "all p99", "max/mean", "evenness", "hit rate",
    "cross-region",
)  # fmt: skip
OURS = "ours"
OFF: Mapping[str, Mapping[str, Any]] = {
    "no place": {"place": False},
    "no queue": {"queue": False},
    "no cache": {"cache": False},
    "no pressure": {"pressure": False},
    "no guard": {"guard": False},
    "equal_s 0": {"equal_s": 0.0},
}
"""The ablation: each term of `time_to_first_token` off in turn."""


class Task(NamedTuple):
    """One run."""

    scenario: Scenario
    line: str
    level: float
    seed: int
    traces: Path | None


class Told(NamedTuple):
    """What is kept of one: its figures, a thousand quantiles of time to first token, evenness second by second."""

    measures: Mapping[str, float]
    first_token_s: list[float]
    evenness: list[float]


Runs = dict[tuple[str, float, str], dict[int, Told]]
"""By scenario, level and line, then seed."""


def scenarios(names: Sequence[str] = ()) -> list[Scenario]:
    """The shipped ones, or those of *names*."""
    files = resources.files("policy.simulate") / "scenarios"
    known = {file.name.removesuffix(".yaml"): file for file in files.iterdir() if file.name.endswith(".yaml")}
    for name in names:
        if name not in known:
            raise ConfigError(f"simulate: there is no scenario {name!r}; known: {', '.join(sorted(known))}")
    return [decode(known[name].read_bytes(), Scenario) for name in (names or sorted(known))]


def ablated(scenario: Scenario) -> Scenario:
    """The same with `ours`, and ours with each term off, as its only lines and no bars."""
    ours = scenario.lines[OURS]
    lines = {OURS: ours}
    for name, off in OFF.items():
        rules = msgspec.structs.replace(ours.rules, first_token=FirstToken(**off))
        lines[name] = Line(rules=rules, knows=ours.knows)
    return msgspec.structs.replace(scenario, lines=lines, bars=())


def missing(scenario: Scenario, traces: Path | None) -> str | None:
    """Why a scenario cannot be run; None: it can."""
    trace = scenario.load.trace
    if trace is None or (traces is not None and _file(traces, trace).is_file()):
        return None
    return f"skipped: no trace {trace}.jsonl in {traces or '../shared/traces'}; say where with --traces"


def run(chosen: Iterable[Scenario], seeds: Sequence[int], traces: Path | None, workers: int | None = None) -> Runs:
    """Every line and level of each scenario with each seed, on all cores."""
    tasks = [
        Task(s, line, level, seed, traces) for seed in seeds for s in chosen for level in s.levels for line in s.lines
    ]
    out: Runs = {}
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        started = {pool.submit(one, task): task for task in tasks}
        for done in as_completed(started):
            task = started[done]
            out.setdefault((task.scenario.name, task.level, task.line), {})[task.seed] = done.result()
    return out


def one(task: Task) -> Told:
    """One run, in a process of the pool."""
    trace = task.scenario.load.trace
    recorded = _recorded(_file(task.traces, trace)) if trace is not None and task.traces is not None else ()
    outcome = simulate(task.scenario, task.scenario.lines[task.line], task.seed, task.level, recorded)
    first = outcome.first_token_s
    quantiles = np.quantile(first, np.linspace(0, 1, 1001)).tolist() if first.size else []
    return Told(outcome.measures, quantiles, list(outcome.evenness))


def means(runs: Runs, scenario: Scenario, level: float) -> dict[str, dict[str, tuple[float, float]]]:
    """Mean and half interval over the seeds, by line and measure."""
    out = {}
    for line in scenario.lines:
        told = [run.measures for run in runs[scenario.name, level, line].values()]
        names = [name for name in told[0] if all(name in one for one in told)]
        out[line] = {name: interval([measures[name] for measures in told]) for name in names}
    return out


def verdicts(runs: Runs, scenario: Scenario) -> list[tuple[Any, bool, float]]:
    """Each bar, whether it was met and the figure, mean over the seeds."""
    by_level = {
        level: {line: {name: mean for name, (mean, _) in row.items()} for line, row in table.items()}
        for level in scenario.levels
        for table in [means(runs, scenario, level)]
    }
    return [(bar, *held(bar, by_level[bar.level])) for bar in scenario.bars]


def show(runs: Runs, scenario: Scenario, console: Console) -> bool:
    """Print a scenario's tables and bars; whether every bar held."""
    console.rule(f"{scenario.name}: {scenario.what}")
    for level in scenario.levels:
        found = means(runs, scenario, level)
        columns = list(dict.fromkeys(name for name in SHOWN for row in found.values() if name in row))
        columns += [bar.measure for bar in scenario.bars if bar.measure not in columns]
        table = Table(title=f"load × {level:g}" if len(scenario.levels) > 1 else None)
        for column in ("line", *dict.fromkeys(columns)):
            table.add_column(column)
        for line, row in found.items():
            table.add_row(line, *(_figure(row.get(column)) for column in dict.fromkeys(columns)))
        console.print(table)
    every = True
    for bar, fine, figure in verdicts(runs, scenario):
        every &= fine
        limits = [f"≥ {bar.at_least:g}"] * (bar.at_least is not None) + [f"≤ {bar.at_most:g}"] * (
            bar.at_most is not None
        )
        unit = f" × {bar.relative_to}" if bar.relative_to else ""
        at = f" at {bar.level:g}" if len(scenario.levels) > 1 else ""
        mark = "✓" if fine else "✗"
        text = f"{mark} {bar.line}{at}, {bar.measure}: {figure:.4g} ({', '.join(limits)}{unit}; {bar.source})"
        console.print(text, style="green" if fine else "red", markup=False, highlight=False)
    return every


def as_json(runs: Runs, chosen: Iterable[Scenario]) -> bytes:
    """Everything: each run's measures, and each bar."""
    out = {
        s.name: {
            "runs": [
                {"line": line, "level": level, "seed": seed, "measures": told.measures}
                for level in s.levels
                for line in s.lines
                for seed, told in sorted(runs[s.name, level, line].items())
            ],
            "bars": [{"bar": bar, "held": fine, "figure": figure} for bar, fine, figure in verdicts(runs, s)],
        }
        for s in chosen
    }
    return msgspec.json.format(msgspec.json.encode(out))


def _figure(value: tuple[float, float] | None) -> str:
    return "" if value is None else f"{value[0]:.4g}" + (f" ± {value[1]:.2g}" if value[1] else "")


def _file(traces: Path | None, name: str) -> Path:
    return (traces or Path()) / f"{name}.jsonl"


@lru_cache(maxsize=2)
def _recorded(file: Path) -> tuple[Recorded, ...]:
    decoder = msgspec.json.Decoder(Recorded)
    return tuple(decoder.decode(line) for line in file.read_bytes().splitlines() if line)
