"""The fleet as it is now: which nodes there are, how busy each is, what we sent and what came of it."""

import math
from collections.abc import Iterable, Sequence

import numpy as np

from policy.kvcache import BLOCK_TOKENS, CACHE_BLOCKS, Block, PrefixLedger
from policy.latency import Latencies
from policy.rules import Watermarks
from policy.types import Fleet, Floats, Load, Node

WINDOW_S = 60.0
STEP_S = 5.0
STALE_S = 10.0
"""Figures older than this are not known any more."""
DEAD_S = 3.0
"""A pod whose own port refuses connections for so long is taken for gone, until it is read again."""
SLOW_START_S = 30.0
"""A node that comes to a running fleet takes so long to get its whole share: its caches are cold."""
COLDEST = 0.1
ENOUGH = 50
"""Answers lately; a P99 of fewer says more about their prompts than about the node."""
MOST_BLOCKS = 200_000
"""Blocks of all nodes together; about 300 bytes each."""
_SLOTS = int(WINDOW_S / STEP_S)
_KEPT = (
    "running", "waiting", "memory", "qps", "sent", "inflight", "queued_tokens", "latency_ms", "p99_ms", "error_rate",
    "warm", "full", "dead",
)  # fmt: skip
"""Columns that another topology takes over for the nodes that stay; peak_ms goes with the latencies."""


class Lease:
    """One request on its way to a node and back. Each step counts once, however often and from wherever it is told."""

    __slots__ = ("_began", "_ended", "_fleet", "_key", "_sent_at", "_tokens", "node")

    def __init__(self, fleet: "LiveFleet", node: str, key: str, tokens: float, now: float) -> None:
        self.node = node
        self._fleet = fleet
        self._key = key
        self._tokens = tokens
        self._sent_at = now
        self._began = self._ended = False

    def began(self, now: float) -> None:
        """The answer begins, and is no error: its prompt has been read."""
        if not self._began and not self._ended:
            self._began = True
            self._fleet._began(self.node, self._key, self._tokens, (now - self._sent_at) * 1000.0, now)

    def ended(self, now: float, *, failed: bool = False) -> None:
        """The answer is over, or will never come. *failed*: by the node's fault."""
        if not self._ended:
            self._ended = True
            waited_ms = 0.0 if self._began else (now - self._sent_at) * 1000.0
            self._fleet._ended(self.node, self._key, 0.0 if self._began else self._tokens, failed, waited_ms, now)


class LiveFleet:
    """Owner of the columns behind a policy Fleet. One thread; times are seconds on the caller's clock.

    Decisions read `fleet`, whose columns change in place: what we sent shows in the very next decision.
    """

    def __init__(
        self,
        nodes: Iterable[Node],
        watermarks: Watermarks,
        *,
        watched: bool = False,
        prefill_tokens_per_s: float = 8000.0,
    ) -> None:
        """*watched*: the ends of requests are told through their leases. Else what is in flight is not known, and
        prompts we sent are thought to be read at *prefill_tokens_per_s*."""
        self._watermarks = watermarks
        self._rate = prefill_tokens_per_s
        self._drained_at = 0.0
        self._watched = watched
        self.fleet = Fleet(nodes)
        size = len(self.fleet)
        self._sent: Floats = np.zeros((_SLOTS + 1, size))
        """Requests in each step of the window, the current one last written; one slot more than whole steps."""
        self._total: Floats = np.zeros(size)
        """The sum of all slots, kept so that counting one request does not add thirteen."""
        self._step = 0
        self._step_ends = -math.inf
        self._began_at = math.inf
        self._seen: Floats = np.full(size, -math.inf)
        self._refused: Floats = np.full(size, math.inf)
        """Since when a pod has refused every connection."""
        self._came: Floats = np.full(size, -math.inf)
        """When a node joined a running fleet; NaN: since the last tick."""
        self._ledger = PrefixLedger(_capacities(size))
        self._prompt = 0.0
        """Tokens of a prompt, on average."""
        self._use(self.fleet, Latencies(size))

    def sent(self, address: str, now: float, tokens: float = 0.0, blocks: Sequence[Block] = ()) -> Lease | None:
        """One more request goes to *address*: *tokens* of its prompt are not cached there, its prefix is *blocks*."""
        where = self.fleet.by_address.get(address)
        if where is None:
            return None
        self._count(where, now, 1.0)
        if blocks:
            self._ledger.sent(where, blocks)
        self._prompt += 0.02 * (tokens - self._prompt) if self._prompt else tokens
        if not self._watched:
            self._drain(now)
            self.fleet.queued_tokens[where] = np.nan_to_num(self.fleet.queued_tokens.item(where)) + tokens
            return None
        self.fleet.queued_tokens[where] += tokens
        self.fleet.inflight[where] += 1.0
        return Lease(self, address, self.fleet.nodes[where].key, tokens, now)

    def cached(self, blocks: Sequence[Block]) -> Floats:
        """Tokens of a prompt of *blocks* that each node has in its cache, as far as we know, [n]."""
        return self._ledger.matched(blocks) * float(BLOCK_TOKENS)

    def of(self, column: Floats, node: Node) -> float:
        """A column's value for *node*."""
        return column.item(self.fleet.by_address[node.address])

    def unsent(self, address: str, now: float) -> None:
        """One that was counted as sent to *address* went elsewhere."""
        where = self.fleet.by_address.get(address)
        if where is not None:
            self._count(where, now, -1.0)

    def answered(self, address: str, ms: float, now: float) -> None:
        """An answer that was as it should be began *ms* after its request was sent, seen from outside."""
        if (where := self.fleet.by_address.get(address)) is not None:
            self._latencies.answered(where, ms, now)

    def failed(self, address: str, now: float) -> None:
        """A request ended in an error of the node's, seen from outside."""
        if (where := self.fleet.by_address.get(address)) is not None:
            self._latencies.failed(where, now)

    def ages(self, now: float) -> Floats:
        """Seconds since each pod's figures were read, [n]; infinite: never."""
        return now - self._seen

    def unread(self, address: str) -> float:
        """Requests sent to *address* since its figures were read; ask before reading them again."""
        where = self.fleet.by_address.get(address)
        return 0.0 if where is None else float(self.fleet.sent[where])

    def observed(self, address: str, load: Load, now: float, *, counted: float | None = None) -> None:
        """A pod's own figures, just read; what it does not say is not known.

        *counted*: requests that were `unread` when the page was asked for. Those sent while it was under way are in
        nobody's figures yet, so they stay ours; None: no request was sent meanwhile.
        """
        where = self.fleet.by_address.get(address)
        if where is None:
            return
        fleet = self.fleet
        fleet.running[where] = _number(load.running)
        fleet.waiting[where] = _number(load.waiting)
        fleet.memory[where] = _number(load.memory)
        fleet.sent[where] = 0.0 if counted is None else max(0.0, fleet.sent[where] - counted)
        if not self._watched:  # what waits is as long as what we send
            self._drain(now)
            fleet.queued_tokens[where] = np.fmax(fleet.queued_tokens[where], fleet.waiting[where] * self._prompt)
        self._seen[where] = now
        self._refused[where] = math.inf
        fleet.dead[where] = False
        self._watermark(where)

    def refused(self, address: str, now: float) -> None:
        """The pod's own port refused a connection: nobody listens there."""
        where = self.fleet.by_address.get(address)
        if where is not None:
            self._refused[where] = min(self._refused[where], now)
            self.fleet.dead[where] = now - self._refused[where] >= DEAD_S

    def tick(self, now: float) -> None:
        """Time goes by, about once a second: rates fall though nothing is sent, and figures grow stale.

        A pod whose figures are stale is neither idle nor saturated: it may be well and only its metrics port gone. Nor
        does what we sent it add up for ever, since nobody will count it: that alone would starve it.
        """
        self._advance(now)
        fleet = self.fleet
        fleet.qps[:] = self._total / self._span(now)
        stale = now - self._seen >= STALE_S
        for column in (fleet.running, fleet.waiting, fleet.memory):
            column[stale] = math.nan
        fleet.sent[stale] = 0.0
        if not self._watched:
            self._drain(now)
        fleet.full[stale] = False
        fleet.latency_ms[:], fleet.p99_ms[:] = self._latencies.quantiles(0.5, 0.99)
        fleet.error_rate[:] = self._latencies.error_rate()
        p99s = fleet.p99_ms[self._latencies.answers(now) >= ENOUGH]
        fleet.usual_ms = float(np.median(p99s)) if p99s.size else math.nan
        self._came[np.isnan(self._came)] = now
        fleet.warm[:] = np.clip((now - self._came) / SLOW_START_S, COLDEST, 1.0)

    def replace(self, nodes: Iterable[Node]) -> None:
        """Another topology; a node with the same address and identity keeps its figures, another pod starts anew."""
        old, old_sent, old_total, old_seen = self.fleet, self._sent, self._total, self._seen
        old_refused, old_came, latencies = self._refused, self._came, self._latencies
        new = Fleet(nodes)
        self._sent = np.zeros((_SLOTS + 1, len(new)))
        self._total = np.zeros(len(new))
        self._seen = np.full(len(new), -math.inf)
        self._refused = np.full(len(new), math.inf)
        self._came = np.full(len(new), math.nan if len(old) else -math.inf)
        rows = [_row(old, node) for node in new.nodes]
        self._ledger = self._ledger.keep(rows, _capacities(len(new)))
        self._use(new, latencies.keep(rows))
        new.usual_ms = old.usual_ms
        for i, was in enumerate(rows):
            if was is None:
                continue
            for column in _KEPT:
                getattr(new, column)[i] = getattr(old, column)[was]
            self._sent[:, i] = old_sent[:, was]
            self._total[i] = old_total[was]
            self._seen[i] = old_seen[was]
            self._refused[i] = old_refused[was]
            self._came[i] = old_came[was]

    def _use(self, fleet: Fleet, latencies: Latencies) -> None:
        self._latencies = latencies
        fleet.peak_ms = latencies.peak_ms
        fleet.inflight[:] = 0.0 if self._watched else math.nan
        fleet.queued_tokens[:] = 0.0 if self._watched else math.nan
        fleet.warm[np.isnan(self._came)] = COLDEST
        self.fleet = fleet

    def _began(self, address: str, key: str, tokens: float, ms: float, now: float) -> None:
        if (where := self._same(address, key)) is not None:
            self.fleet.queued_tokens[where] = max(0.0, self.fleet.queued_tokens.item(where) - tokens)
            self._latencies.answered(where, ms, now)

    def _ended(self, address: str, key: str, unread_tokens: float, failed: bool, waited_ms: float, now: float) -> None:
        if (where := self._same(address, key)) is not None:
            self.fleet.inflight[where] = max(0.0, self.fleet.inflight.item(where) - 1.0)
            self.fleet.queued_tokens[where] = max(0.0, self.fleet.queued_tokens.item(where) - unread_tokens)
            if failed:
                self._latencies.failed(where, now, waited_ms)

    def _same(self, address: str, key: str) -> int | None:
        """The node's row, unless another pod has its address by now."""
        where = self.fleet.by_address.get(address)
        return where if where is not None and self.fleet.nodes[where].key == key else None

    def _count(self, where: int, now: float, requests: float) -> None:
        if now >= self._step_ends:
            self._advance(now)
        self._sent[self._step % (_SLOTS + 1), where] += requests
        self._total[where] = total = self._total.item(where) + requests
        self.fleet.sent[where] += requests
        # Requests a second over the last 60 s, in 5 s steps (design formula 2); over less while we are younger.
        self.fleet.qps[where] = total / self._span(now)

    def _drain(self, now: float) -> None:
        """Nodes have read on since we last looked."""
        read = max(0.0, now - self._drained_at) * self._rate
        np.maximum(self.fleet.queued_tokens - read, 0.0, out=self.fleet.queued_tokens)
        self._drained_at = now

    def _advance(self, now: float) -> None:
        self._began_at = min(self._began_at, now)
        step = int(now / STEP_S)
        behind = min(step - self._step, _SLOTS + 1)
        for i in range(behind):
            slot = (step - i) % (_SLOTS + 1)
            self._total -= self._sent[slot]
            self._sent[slot] = 0.0
        self._step = max(step, self._step)
        self._step_ends = (self._step + 1) * STEP_S

    def _span(self, now: float) -> float:
        whole = WINDOW_S + now % STEP_S
        age = now - self._began_at
        return whole if age > whole else max(STEP_S, age)

    def _watermark(self, where: int) -> None:
        """Above high a node is full, until it is back under low; between the two it stays what it was."""
        memory = self.fleet.memory[where]
        if memory > self._watermarks.high:
            self.fleet.full[where] = True
        elif not memory >= self._watermarks.low:
            self.fleet.full[where] = False


def _capacities(nodes: int) -> list[int]:
    """Blocks to keep in mind of each node; of a very large fleet fewer, so that all together cost bounded memory."""
    return [min(CACHE_BLOCKS, max(16, MOST_BLOCKS // max(1, nodes)))] * nodes


def _row(fleet: Fleet, node: Node) -> int | None:
    """Where the same node stood; None: it is new, or another pod on an old address."""
    was = fleet.by_address.get(node.address)
    return was if was is not None and fleet.nodes[was].key == node.key else None


def _number(value: float | None) -> float:
    return math.nan if value is None else value
