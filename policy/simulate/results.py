"""What came of a run, in figures."""

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct

from policy.entropy import entropy, evenness
from policy.simulate.nodes import Job, Node, Worker
from policy.simulate.scenario import Bar, Scenario
from policy.types import Floats


class Outcome(Struct, frozen=True):
    """One run. *measures* by name: seconds, shares or counts, as `MEASURES` says."""

    measures: Mapping[str, float]
    first_token_s: Floats
    evenness: Sequence[float]

    @classmethod
    def of(
        cls,
        scenario: Scenario,
        jobs: Sequence[Job],
        nodes: Sequence[Node],
        watched: Sequence[Sequence[float]],
        homes: Sequence[set[int]],
    ) -> "Outcome":
        """Count what began after the warm-up. *watched*: requests at each node, second by second."""
        loads = np.array(watched).reshape(len(watched), len(nodes))
        even = [evenness(load) for load in loads]
        counted = [job for job in jobs if job.at >= scenario.warm_up_s]
        fine = [job for job in counted if not job.failed]
        first = np.array([job.began - job.at for job in fine])
        whole = np.array([job.ended - job.at for job in fine])
        every = np.array([scenario.timeout_s if job.failed else job.ended - job.at for job in counted])
        at_nodes = np.bincount([job.node for job in counted if job.node >= 0], minlength=len(nodes))
        measures = {
            "success": len(fine) / max(1, len(counted)),
            "throughput": len(fine) / max(1e-9, scenario.seconds - scenario.warm_up_s),
            **_spread("ttft", first),
            **_spread("e2e", whole),
            **_spread("all", every),
            "max/mean": float(at_nodes.max() / max(1e-9, at_nodes.mean())),
            **_evenness(loads, even, scenario.round_s),
            **_caches(nodes),
        }
        if scenario.goal_s is not None:
            measures["within goal"] = sum(j.ended - j.at <= scenario.goal_s for j in fine) / max(1, len(counted))
        placed = [job for job in counted if job.region >= 0 and homes[job.region]]
        if placed:
            measures["cross-region"] = sum(job.node not in homes[job.region] for job in placed) / len(placed)
        return cls(measures, np.sort(first), even)


def _spread(name: str, seconds: Floats) -> dict[str, float]:
    """Mean and quantiles; errors and those who gave up are not among `ttft` and `e2e`, and count as the client's whole
    patience in `all`."""
    if seconds.size == 0:
        return {}
    quantiles = np.quantile(seconds, (0.5, 0.95, 0.99, 0.999))
    return {
        f"{name} mean": float(seconds.mean()),
        **{f"{name} {p}": float(q) for p, q in zip(("p50", "p95", "p99", "p99.9"), quantiles, strict=True)},
    }


def _evenness(loads: Floats, even: Sequence[float], round_s: float | None) -> dict[str, float]:
    if not even:
        return {}
    mean = loads.mean(axis=0)
    out = {"evenness": float(np.mean(even)), "load max/mean": float(mean.max() / max(1e-9, mean.mean()))}
    if round_s is not None:
        rounds = [entropy(part.mean(axis=0)) for part in np.split(loads, range(int(round_s), len(loads), int(round_s)))]
        out |= {f"H round {i}": bits for i, bits in enumerate(rounds, 1)}
        settled = rounds[2:]
        out["settled"] = abs(rounds[2] / rounds[-1] - 1.0) if settled else float("nan")
        out["swing"] = max(settled) - min(settled) if settled else float("nan")
    return out


def _caches(nodes: Sequence[Node]) -> dict[str, float]:
    workers = [node for node in nodes if isinstance(node, Worker)]
    asked = sum(worker.asked for worker in workers)
    if not asked:
        return {}
    kept = [worker.holds for worker in workers]
    return {
        "hit rate": sum(worker.hits for worker in workers) / asked,
        "stored": sum(worker.stored for worker in workers),
        "redundant": sum(map(len, kept)) - len(set[int]().union(*kept)),
    }


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Mean over seeds and half the width of its 95 % interval (normal; ten seeds make it a rough one)."""
    some = np.array(values)
    half = 1.96 * float(some.std(ddof=1)) / np.sqrt(some.size) if some.size > 1 else 0.0
    return float(some.mean()), float(half)


def held(bar: Bar, found: Mapping[str, Mapping[str, float]]) -> tuple[bool, float]:
    """Whether a bar was met, and the figure it was held to. *found*: measures by line."""
    figure = found[bar.line][bar.measure]
    unit = 1.0
    if bar.relative_to == "others":
        best = min if bar.at_most is not None else max
        unit = best(measures[bar.measure] for line, measures in found.items() if line != bar.line)
    elif bar.relative_to is not None:
        unit = found[bar.relative_to][bar.measure]
    fine = (bar.at_most is None or figure <= bar.at_most * unit) and (
        bar.at_least is None or figure >= bar.at_least * unit
    )
    return fine, figure / unit if unit else float("nan")
