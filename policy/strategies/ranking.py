"""What a strategy gives back."""

from collections.abc import Mapping
from typing import NamedTuple

from policy.types import Floats


class Ranking(NamedTuple):
    """Points of each candidate, more is better, and the criteria they add up from (both [m])."""

    points: Floats
    criteria: Mapping[str, Floats]


def draws(turn: int, bound: int, count: int) -> list[int]:
    """*count* numbers under *bound* that look random and follow from *turn* alone (splitmix64, Steele et al. 2014)."""
    out = []
    for i in range(count):
        z = (turn * 2 + i + 1) * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB & 0xFFFFFFFFFFFFFFFF
        out.append((z ^ (z >> 31)) % bound)
    return out
