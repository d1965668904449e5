"""What the options of `isogloss simulate` mean."""

import argparse
from pathlib import Path

from rich.console import Console
from rich.table import Table

from ext_proc import simulation, simulation_plots
from ext_proc.errors import ConfigError
from policy.simulate.results import interval
from policy.simulate.scenario import Scenario

TRACES = Path("../shared/traces")
_ABLATED = ("within goal", "ttft mean", "ttft p99", "all p99")


def simulate(options: argparse.Namespace) -> int:
    """Exit status: 0 every bar held, 1 some did not or a scenario was skipped."""
    console = Console()
    chosen = simulation.scenarios(options.names)
    if options.list:
        for scenario in chosen:
            console.print(f"{scenario.name:20} {scenario.what}", markup=False, highlight=False)
        return 0
    if options.seeds < 1 or options.first_seed < 0:
        raise ConfigError(f"--seeds {options.seeds} --first-seed {options.first_seed}: at least one, from 0 on")
    if options.plots is not None:
        simulation_plots.pyplot()  # before an hour's work, not after
    traces = options.traces or (TRACES if TRACES.is_dir() else None)
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    every, done, runs = True, [], simulation.Runs()
    for scenario in chosen:
        if (why := simulation.missing(scenario, traces)) is not None:
            every = False
            console.print(f"{scenario.name}: {why}", style="yellow", markup=False)
            continue
        if options.ablate and simulation.OURS not in scenario.lines:
            continue
        played = simulation.ablated(scenario) if options.ablate else scenario
        runs |= simulation.run([played], seeds, traces)
        done.append(played)
        if options.ablate:
            _worth(runs, played, console)
        else:
            every &= simulation.show(runs, played, console)
        if options.plots is not None:
            simulation_plots.draw(runs, played, options.plots)
        if options.json is not None:
            options.json.write_bytes(simulation.as_json(runs, done))
    return 0 if every else 1


def _worth(runs: simulation.Runs, scenario: Scenario, console: Console) -> None:
    """What ours loses without each term, seed by seed: × its own figure, with the interval of that."""
    for level in scenario.levels:
        ours = runs[scenario.name, level, simulation.OURS]
        names = [n for n in _ABLATED if all(told.measures.get(n) for told in ours.values())]
        table = Table("without", *names, title=f"{scenario.name}, load × {level:g}: times ours")
        for line in scenario.lines:
            its = runs[scenario.name, level, line]
            cells = []
            for name in names:
                ratios = [its[seed].measures[name] / ours[seed].measures[name] for seed in ours]
                mean, half = interval(ratios)
                cells.append(f"{mean:.3f} ± {half:.3f}")
            table.add_row(line, *cells)
        console.print(table)
