"""Plots of `isogloss simulate`, with matplotlib (extra `isogloss[plots]`)."""

from pathlib import Path
from typing import Any

import numpy as np

from ext_proc.errors import ConfigError
from ext_proc.simulation import Runs, means
from policy.simulate.scenario import Scenario


def pyplot() -> Any:
    """matplotlib, drawing to files only; ConfigError where it is not installed."""
    try:
        import matplotlib as mpl  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as exc:
        raise ConfigError("--plots needs matplotlib: pip install 'isogloss[plots]'") from exc
    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    return plt


def draw(runs: Runs, scenario: Scenario, folder: Path) -> None:
    """Latency CDF and evenness at the highest load, throughput against P99 over the loads, cross-region share."""
    plt = pyplot()
    folder.mkdir(parents=True, exist_ok=True)
    top = max(scenario.levels)
    found = {level: means(runs, scenario, level) for level in scenario.levels}
    kinds = ["latency", "evenness"]
    kinds += ["pareto"] * (len(scenario.levels) > 1) + ["cross-region"] * bool(scenario.regions)
    for kind in kinds:
        figure, axes = plt.subplots(figsize=(7, 4.5))
        for line in scenario.lines:
            told = runs[scenario.name, top, line].values()
            if kind == "latency" and all(one.first_token_s for one in told):
                axes.plot(np.mean([one.first_token_s for one in told], axis=0), np.linspace(0, 1, 1001), label=line)
            elif kind == "evenness":
                axes.plot(np.mean([one.evenness for one in told], axis=0), label=line)
            elif kind == "pareto":
                rows = [found[level][line] for level in scenario.levels]
                points = [(r["throughput"][0], r["all p99"][0]) for r in rows]
                axes.plot(*zip(*points, strict=True), marker="o", label=line)
            elif kind == "cross-region":
                axes.bar(line, found[top][line].get("cross-region", (0.0, 0.0))[0])
        labels = {
            "latency": ("time to first token, s", "share of requests"),
            "evenness": ("s", "H / log₂ n"),
            "pareto": ("answers a second", "P99, s"),
            "cross-region": ("", "share of requests"),
        }[kind]
        axes.set(xlabel=labels[0], ylabel=labels[1], title=scenario.what)
        if kind == "latency":
            axes.set_xscale("symlog", linthresh=0.01)
        if axes.get_legend_handles_labels()[1]:
            axes.legend()
        figure.savefig(folder / f"{scenario.name}-{kind}.png", dpi=110, bbox_inches="tight")
        plt.close(figure)
