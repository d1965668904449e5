"""Which node has which prompt prefixes in its cache, as far as one can know from outside.

A prompt is a chain of blocks, each named by a hash of itself and all before it, so equal names are equal prefixes. What
a node was sent it has, until enough else was sent to push it out (vLLM's own rule: the least recently used goes first).
"""

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

from policy.types import Floats

Block = int
"""A 64-bit hash."""
BLOCK_TOKENS = 512
CACHE_BLOCKS = 600
"""A model of 8B parameters with 40 GB for its cache holds about so many."""
HOT_ABOVE, HOT_DECAY_S, HOT_WINDOW_S = 5.0, 30.0, 60.0
MOST_PREFIXES = 100_000
"""Prefixes whose heat is kept; the coldest by last use goes first."""


class PrefixLedger:
    """Blocks each of some nodes is thought to hold. Times are seconds on the caller's clock."""

    def __init__(self, capacities: Sequence[int]) -> None:
        """*capacities*: blocks each node can hold."""
        self._capacities = list(capacities)
        self._held: list[OrderedDict[Block, None]] = [OrderedDict() for _ in capacities]
        self._holders: dict[Block, set[int]] = {}

    def __len__(self) -> int:
        """Blocks held, all nodes together."""
        return sum(map(len, self._held))

    def matched(self, blocks: Sequence[Block]) -> Floats:
        """How many of *blocks*, from the first on without a gap, each node holds, [n]."""
        out = np.zeros(len(self._held))
        nodes: set[int] = set()
        for depth, block in enumerate(blocks):
            holders = self._holders.get(block)
            if not holders:
                break
            nodes = set(holders) if depth == 0 else nodes & holders
            if not nodes:
                break
            out[list(nodes)] = depth + 1
        return out

    def sent(self, node: int, blocks: Sequence[Block]) -> None:
        """*node* got a prompt of *blocks*: it has them now, the last of them least recently used of all.

        vLLM frees a chain from its end, so that what many share goes last.
        """
        held = self._held[node]
        for block in reversed(blocks):
            held[block] = None
            held.move_to_end(block)
            self._holders.setdefault(block, set()).add(node)
        while len(held) > self._capacities[node]:
            gone, _ = held.popitem(last=False)
            holders = self._holders[gone]
            holders.discard(node)
            if not holders:
                del self._holders[gone]

    def keep(self, rows: Sequence[int | None], capacities: Sequence[int]) -> "PrefixLedger":
        """The same for another list of nodes: each one's old row, or None for a node that starts empty."""
        new = PrefixLedger(capacities)
        for i, row in enumerate(rows):
            if row is not None:
                new._held[i] = self._held[row]
                for block in self._held[row]:
                    new._holders.setdefault(block, set()).add(i)
        return new

    def forget(self, node: int) -> None:
        """*node* started anew: its cache is empty."""
        for block in self._held[node]:
            holders = self._holders[block]
            holders.discard(node)
            if not holders:
                del self._holders[block]
        self._held[node].clear()


class Heat:
    """Which prefixes are asked for so often that one node is not enough for them (design formula 9)."""

    def __init__(self) -> None:
        self._seen: OrderedDict[Block, tuple[float, float]] = OrderedDict()

    def asked(self, block: Block, now: float) -> bool:
        """One more prompt began with *block*; True when it is hot: count over 60 s · exp(-age/30 s) > 5.

        The count decays with the window instead of ending sharply; age is the time since it was last asked for.
        """
        count, last = self._seen.pop(block, (0.0, now))
        age = now - last
        count = count * float(np.exp(-age / HOT_WINDOW_S))
        hot = count * float(np.exp(-age / HOT_DECAY_S)) > HOT_ABOVE
        self._seen[block] = (count + 1.0, now)
        if len(self._seen) > MOST_PREFIXES:
            self._seen.popitem(last=False)
        return hot
