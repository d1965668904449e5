"""Simulated nodes: one that only takes time, and one that reads prompts and writes answers as vLLM does."""

import math
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Sequence

import numpy as np
from msgspec import Struct

from policy.simulate.clock import Clock
from policy.simulate.scenario import Antagonist, Fault, Group


class Job(Struct, eq=False):
    """One request. What happened to it is filled in as it happens; times in seconds, NaN: not yet."""

    at: float
    service_s: float = 0.0
    prompt_tokens: int = 0
    output_tokens: int = 0
    blocks: tuple[int, ...] = ()
    intent: str | None = None
    pool: str | None = None
    """The one its intent belongs to."""
    region: int = -1
    node: int = -1
    hit_blocks: int = 0
    began: float = math.nan
    ended: float = math.nan
    failed: bool = False


Told = Callable[[Job, str], None]
"""`began`, `ended` or `failed`, at the node; the way back is the caller's."""


class Node:
    """What both kinds share: faults, and figures as a metrics page would give them."""

    def __init__(self, group: Group, clock: Clock, told: Told, faults: Sequence[Fault]) -> None:
        self._group = group
        self._clock = clock
        self._told = told
        self._faults = faults
        self.work_s = 0.0
        """Seconds of service given so far."""

    def take(self, job: Job) -> None:
        """A request arrives."""
        fault = self._fault("black_hole", "error", "slow")
        if fault is None:
            self._serve(job)
        elif fault.kind == "error":
            self._clock.after(fault.service_s, self._told, job, "failed")
        elif fault.kind == "slow":
            self._clock.after(fault.service_s, self._told, job, "ended")

    def _serve(self, job: Job) -> None:
        raise NotImplementedError

    @property
    def running(self) -> int:
        raise NotImplementedError

    @property
    def waiting(self) -> int:
        raise NotImplementedError

    @property
    def memory(self) -> float:
        """Share of what it can hold."""
        return 0.0

    def _factor(self, job: Job) -> float:
        fault = self._fault("factor")
        foreign = self._group.foreign if job.pool not in (None, self._group.pool) else 1.0
        return (1.0 if fault is None else fault.factor) * foreign / self._group.speed

    def _fault(self, *kinds: str) -> Fault | None:
        now = self._clock.now
        for fault in self._faults:
            if fault.kind in kinds and fault.at <= now < fault.at + fault.seconds:
                return fault
        return None


class Server(Node):
    """First come, first served, on so many slots; a slot takes a request's own time."""

    def __init__(self, group: Group, clock: Clock, told: Told, faults: Sequence[Fault]) -> None:
        super().__init__(group, clock, told, faults)
        self._queue: deque[Job] = deque()
        self._busy = 0
        self.taken = 0.0
        """Share of the slots that somebody else has."""

    @property
    def running(self) -> int:
        return self._busy

    @property
    def waiting(self) -> int:
        return len(self._queue)

    def _serve(self, job: Job) -> None:
        self._queue.append(job)
        self.fill()

    def fill(self) -> None:
        """Start what there are slots for."""
        slots = math.inf if self._group.slots == 0 else max(1.0, round(self._group.slots * (1.0 - self.taken)))
        while self._queue and self._busy < slots:
            job = self._queue.popleft()
            seconds = job.service_s * self._factor(job)
            self._busy += 1
            self.work_s += seconds
            self._clock.after(seconds, self._done, job)

    def _done(self, job: Job) -> None:
        self._busy -= 1
        self._told(job, "ended")
        self.fill()


class Worker(Node):
    """Prompts are read one after the other, less what the cache holds; answers are written side by side."""

    def __init__(self, group: Group, clock: Clock, told: Told, faults: Sequence[Fault], block_tokens: int) -> None:
        super().__init__(group, clock, told, faults)
        self._block_tokens = block_tokens
        self._queue: deque[Job] = deque()
        self._reading: Job | None = None
        self._writing = 0
        self._cache: OrderedDict[int, None] = OrderedDict()
        self.hits = self.asked = self.stored = 0
        """Blocks found in the cache, asked for, and put into it, so far."""

    @property
    def running(self) -> int:
        return self._writing + (self._reading is not None)

    @property
    def waiting(self) -> int:
        return len(self._queue)

    @property
    def memory(self) -> float:
        return 0.0  # a prefix cache that is full is no pressure: it gives way

    def _serve(self, job: Job) -> None:
        self._queue.append(job)
        if self._reading is None:
            self._read()

    def _read(self) -> None:
        if not self._queue:
            self._reading = None
            return
        job = self._reading = self._queue.popleft()
        job.hit_blocks = self._look_up(job.blocks)
        tokens = max(0, job.prompt_tokens - job.hit_blocks * self._block_tokens)
        rate = self._group.prefill_tokens_per_s or 1.0
        seconds = tokens / rate * self._factor(job)
        self.work_s += seconds
        self._clock.after(seconds, self._has_read, job)

    def _has_read(self, job: Job) -> None:
        self._keep(job.blocks)
        self._told(job, "began")
        self._writing += 1
        seconds = job.output_tokens / self._group.decode_tokens_per_s * self._factor(job)
        self._clock.after(seconds, self._has_written, job)
        self._read()

    def _has_written(self, job: Job) -> None:
        self._writing -= 1
        self._told(job, "ended")

    @property
    def holds(self) -> Collection[int]:
        """The blocks in the cache."""
        return self._cache.keys()

    def _look_up(self, blocks: tuple[int, ...]) -> int:
        found = 0
        for block in blocks:
            if block not in self._cache:
                break
            found += 1
        self.hits += found
        self.asked += len(blocks)
        return found

    def _keep(self, blocks: tuple[int, ...]) -> None:
        for block in reversed(blocks):
            self.stored += block not in self._cache
            self._cache[block] = None
            self._cache.move_to_end(block)
        while len(self._cache) > self._group.cache_blocks:
            self._cache.popitem(last=False)


def walk(server: Server, law: Antagonist, clock: Clock, random: np.random.Generator) -> None:
    """Others come and go on the server's machine, for ever."""
    at = int(random.integers(len(law.shares)))

    def step() -> None:
        nonlocal at
        at = min(len(law.shares) - 1, max(0, at + (1 if random.random() < law.up else -1)))
        server.taken = law.shares[at]
        server.fill()
        clock.after(law.dwell_s, step)

    step()
