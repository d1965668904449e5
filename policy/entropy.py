"""How evenly work is spread: a figure to watch and weights to lean on, not the goal.

Balancing load for its own sake loses tails (Prequal, NSDI 2024); so entropy is a guard here.
"""

import numpy as np

from policy.types import Floats

MAX_SHARE = 0.5
"""Of the weights, for one node: taken literally an idle node would get all of it (design formula 1)."""
_NOTHING = 1e-6


def entropy(load: Floats) -> float:
    """H = -Σ p log₂ p of the load's shares, in bits; log₂ n when all are equal or there is none (design formula 1)."""
    total = float(load.sum())
    if load.size == 0:
        return 0.0
    if total <= 0.0:
        return float(np.log2(load.size))
    shares = load / total
    shares = shares[shares > 0.0]
    return max(0.0, -float((shares * np.log2(shares)).sum()))


def evenness(load: Floats) -> float:
    """H / log₂ n, in [0, 1]; 1 for one node."""
    return entropy(load) / float(np.log2(load.size)) if load.size > 1 else 1.0


def weights(load: Floats) -> Floats:
    """wᵢ ∝ 1/(pᵢ + 1e-6), normalised and capped, [n]: more for who has less (design formula 1).

    Equal load, and no load at all, give equal weights.
    """
    n, total = load.size, float(np.add.reduce(load))
    if total <= 0.0:
        return np.full(n, 1.0 / max(1, n))
    raw = 1.0 / (load / total + _NOTHING)
    out: Floats = raw / np.add.reduce(raw)
    highest = int(out.argmax())
    if out[highest] > MAX_SHARE and n > 1:  # at most one can be over a half
        out[highest] = 0.0
        out *= (1.0 - MAX_SHARE) / np.add.reduce(out)
        out[highest] = MAX_SHARE
    return out
