"""What came of a run, in figures."""

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct

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
        evenness: Sequence[float],
        homes: Sequence[set[int]],
    ) -> "Outcome":
        """Count what began after the warm-up."""
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
            "evenness": float(np.mean(evenness)) if evenness else float("nan"),
            **_caches(nodes),
        }
        placed = [job for job in counted if job.region >= 0 and homes[job.region]]
        if placed:
            measures["cross-region"] = sum(job.node not in homes[job.region] for job in placed) / len(placed)
        return cls(measures, np.sort(first), list(evenness))


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


def _caches(nodes: Sequence[Node]) -> dict[str, float]:
    workers = [node for node in nodes if isinstance(node, Worker)]
    asked = sum(worker.asked for worker in workers)
    if not asked:
        return {}
    return {"hit rate": sum(worker.hits for worker in workers) / asked, "stored": sum(w.stored for w in workers)}


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Mean over seeds and half the width of its 95 % interval (normal; ten seeds make it a rough one)."""
    some = np.array(values)
    half = 1.96 * float(some.std(ddof=1)) / np.sqrt(some.size) if some.size > 1 else 0.0
    return float(some.mean()), float(half)


def held(bar: Bar, found: Mapping[str, Mapping[str, float]]) -> tuple[bool, float]:
    """Whether a bar was met, and the figure it was held to. *found*: measures by line."""
    figure = found[bar.line][bar.measure]
    unit = found[bar.relative_to][bar.measure] if bar.relative_to is not None else 1.0
    fine = (bar.at_most is None or figure <= bar.at_most * unit) and (
        bar.at_least is None or figure >= bar.at_least * unit
    )
    return fine, figure / unit
