"""How long answers take, per node and lately: a decaying histogram of fixed size, a peak average, a share of errors.

Forward decay (Cormode et al. 2009): instead of shrinking what is there, newer counts weigh more, exp((t - start)/τ);
every so often all weights are scaled back. Buckets grow by a tenth, so a quantile is at most 5 % off.
"""

import math
from bisect import bisect_left

import numpy as np

from policy.types import Floats

LOWEST_MS, GROWTH, BUCKETS = 0.5, 1.1, 132
"""From half a millisecond to two minutes; what is longer counts as two minutes."""
DECAY_S = 30.0
"""After so long a figure weighs 1/e."""
PEAK_DECAY_S = 10.0
"""Of the peak average, as in Finagle and linkerd."""
_RESCALE = 60.0  # in τ: exp(60) leaves room in a double
_EDGES = LOWEST_MS * GROWTH ** np.arange(BUCKETS)
_EDGE_LIST = _EDGES.tolist()  # bisect in a list: one number, a tenth of searchsorted's price
_MIDDLES = _EDGES / math.sqrt(GROWTH)


class Latencies:
    """Figures of *size* nodes; times are seconds on the caller's clock, latencies milliseconds.

    An error, a 429 and a cancelled request say nothing about speed: they are counted, never timed.
    """

    def __init__(self, size: int) -> None:
        self._counts: Floats = np.zeros((size, BUCKETS))
        self._start = 0.0
        self._fine: Floats = np.zeros(size)
        self._failed: Floats = np.zeros(size)
        self.peak_ms: Floats = np.full(size, np.nan)
        """Peak EWMA: up at once with a slow answer, down by exp(-t/10 s); NaN: nothing measured."""
        self._peak_at: Floats = np.zeros(size)

    def answered(self, node: int, ms: float, now: float) -> None:
        """An answer that was as it should be, after *ms*."""
        weight = self._weight(now)
        self._counts[node, min(BUCKETS - 1, bisect_left(_EDGE_LIST, ms))] += weight
        self._fine[node] += weight
        peak = self.peak_ms.item(node)
        if math.isnan(peak) or ms >= peak:
            self.peak_ms[node] = ms
        else:
            kept = math.exp(-(now - self._peak_at.item(node)) / PEAK_DECAY_S)
            self.peak_ms[node] = peak * kept + ms * (1.0 - kept)
        self._peak_at[node] = now

    def failed(self, node: int, now: float, ms: float = 0.0) -> None:
        """An answer that was an error of the node's, or did not begin within *ms*: it would have taken longer."""
        self._failed[node] += self._weight(now)
        if ms > self.peak_ms.item(node):
            self.peak_ms[node], self._peak_at[node] = ms, now

    def quantile(self, q: float) -> Floats:
        """The latency that a share *q* of the answers stays under, in ms, [n]; NaN where none was seen."""
        return self.quantiles(q)[0]

    def quantiles(self, *shares: float) -> list[Floats]:
        """The same for several shares, counted once."""
        upto = np.cumsum(self._counts, axis=1)
        total = upto[:, -1]
        seen = total > 0.0
        return [np.where(seen, _MIDDLES[(upto >= (q * total)[:, None]).argmax(axis=1)], np.nan) for q in shares]

    def answers(self, now: float) -> Floats:
        """Answers that the figures rest on, older ones counting less, [n]."""
        out: Floats = self._fine / self._weight(now)
        return out

    def error_rate(self) -> Floats:
        """Errors as a share of all answers, [n]; NaN where none was seen."""
        total = self._fine + self._failed
        with np.errstate(invalid="ignore", divide="ignore"):
            out: Floats = np.where(total > 0.0, self._failed / total, np.nan)
        return out

    def keep(self, rows: "list[int | None]") -> "Latencies":
        """The same figures for another list of nodes: each one's old row, or None for a new node."""
        new = Latencies(len(rows))
        new._start = self._start
        for i, row in enumerate(rows):
            if row is not None:
                new._counts[i] = self._counts[row]
                for column in ("_fine", "_failed", "peak_ms", "_peak_at"):
                    getattr(new, column)[i] = getattr(self, column)[row]
        return new

    def _weight(self, now: float) -> float:
        age = (now - self._start) / DECAY_S
        if not 0.0 <= age < _RESCALE:
            scale = math.exp(-min(age, 700.0)) if age > 0.0 else 1.0
            for counted in (self._counts, self._fine, self._failed):
                np.multiply(counted, scale, out=counted)
            self._start, age = now, 0.0
        return math.exp(age)
