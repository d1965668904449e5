"""`python -m tests.bench.decide`: what one decision costs, by fleet size and strategy."""

import timeit

import numpy as np
from rich.console import Console
from rich.table import Table

from policy.engine import decide
from policy.rules import Pool, Rules
from policy.strategies import STRATEGIES
from policy.types import Features, Fleet, Intent, Load, Node, Place, Request

SIZES = (10, 100, 1_000, 10_000)


def world(size: int) -> Fleet:
    """Two pools, five regions, every figure known."""
    random = np.random.default_rng(0)
    nodes = [
        Node(
            address=f"10.{i >> 16}.{i >> 8 & 255}.{i & 255}:8000",
            pool=("code", "general")[i % 2],
            region=f"region-{i % 5}",
            continent=("EU", "NA", "AS")[i % 3],
            models=("coder", "talker"),
            latitude=float(random.uniform(-60, 60)),
            longitude=float(random.uniform(-180, 180)),
        )
        for i in range(size)
    ]
    loads = {
        node.address: Load(
            running=float(random.integers(0, 9)), waiting=0.0, memory=random.uniform(0, 0.9), qps=random.uniform(0, 9)
        )
        for node in nodes
    }
    return Fleet(nodes, loads)


def main() -> None:
    """Best of five rounds, microseconds a decision."""
    request = Request(path="/v1/chat/completions", api="chat", model="coder", prompt_tokens=200, turn=7)
    features = Features(
        intent=Intent("coding", 0.9, 0.5, "coding"),
        place=Place(source="bench", latitude=50.1, longitude=8.7, continent="EU"),
    )
    table = Table("strategy", *(f"{size:,} nodes" for size in SIZES), title="µs a decision")
    fleets = [world(size) for size in SIZES]
    for strategy in STRATEGIES:
        rules = Rules(strategy=strategy, pools={"code": Pool(intents=("coding",))}, fallbacks=2)
        cells = []
        for fleet in fleets:
            count = 2_000 if len(fleet) <= 1_000 else 300
            seconds = timeit.repeat(lambda f=fleet, r=rules: decide(request, features, f, r), number=count, repeat=5)
            cells.append(f"{min(seconds) / count * 1e6:.0f}")
        table.add_row(strategy, *cells)
    Console().print(table)


if __name__ == "__main__":
    main()
