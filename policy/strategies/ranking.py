"""What a strategy gives back."""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from policy.types import Bools, Floats

A_FEW = 16.0


class Ranking(NamedTuple):
    """Points of each candidate, more is better, and the criteria they add up from (both [m])."""

    points: Floats
    criteria: Mapping[str, Floats]
    equal: float = 1e-9
    """Candidates within so many points of the best are as good; whose turn it is decides."""


def known(values: Floats, otherwise: float) -> Floats:
    """*values* with every NaN the mean of the others: an unknown neither wins nor loses; *otherwise* where all are."""
    if not math.isnan(np.add.reduce(values)):
        return values
    missing = np.isnan(values)
    return np.where(missing, otherwise if missing.all() else values[~missing].mean(), values)


def crowded(requests: Floats, spread: float) -> Bools:
    """Candidates with more than *spread* times the mean of requests, and a few more: at few requests ratios say little.

    Bounded loads (Mirrokni et al. 2018): nothing that draws requests to a node may overfill it.
    """
    out: Bools = requests > spread * float(np.add.reduce(requests)) / requests.size + A_FEW
    return out


def draws(turn: int, bound: int, count: int) -> list[int]:
    """*count* numbers under *bound* that look random and follow from *turn* alone (splitmix64, Steele et al. 2014)."""
    out = []
    for i in range(count):
        z = (turn * 16 + i + 1) * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB & 0xFFFFFFFFFFFFFFFF
        out.append((z ^ (z >> 31)) % bound)
    return out
