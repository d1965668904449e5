"""One run: arrivals, routers that decide, nodes that serve, clients that wait or give up."""

import math
from collections.abc import Iterable, Sequence

import numpy as np

from policy import geo
from policy import types as policy
from policy.engine import decide
from policy.kvcache import PrefixLedger
from policy.live import Lease, LiveFleet
from policy.simulate.clock import Clock
from policy.simulate.nodes import Job, Node, Server, Worker, walk
from policy.simulate.results import Outcome
from policy.simulate.scenario import Group, Line, Scenario
from policy.simulate.work import Recorded, jobs, replayed
from policy.types import Features, Floats, Intent, Place, Request, Shed

TICK_S = 1.0
AFTERWARDS_S = 10.0
"""How often it is asked whether the last requests are done."""


def simulate(scenario: Scenario, line: Line, seed: int, level: float = 1.0, trace: Sequence[Recorded] = ()) -> Outcome:
    """Run *scenario* under *line*'s rules. The same arguments give the same outcome."""
    random = np.random.default_rng([seed, 1])
    load = scenario.load
    work: Iterable[Job] = (
        replayed(trace, scenario.seconds, level)
        if load.trace is not None
        else jobs(load, scenario.regions, scenario.seconds, level, scenario.block_tokens, random)
    )
    world = _World(scenario, line, np.random.default_rng([seed, 2]))
    for job in work:
        world.clock.at(job.at, world.arrives, job)
    world.clock.run(scenario.seconds + load.start_s)
    while world.open:  # all end: at the latest when their clients give up
        world.clock.run(world.clock.now + AFTERWARDS_S)
    return Outcome.of(scenario, world.jobs, world.nodes, world.watched, world.homes)


class _Router:
    """One replica: what it knows, and how many it has decided."""

    def __init__(self, nodes: Sequence[policy.Node], line: Line, capacities: Sequence[int], first_turn: int) -> None:
        self.live = LiveFleet(nodes, line.rules.watermarks, watched=True)
        self.ledger = PrefixLedger(capacities)
        self.turn = first_turn


class _World:
    def __init__(self, scenario: Scenario, line: Line, random: np.random.Generator) -> None:
        self.clock = Clock()
        self.jobs: list[Job] = []
        self.nodes: list[Node] = []
        self.watched: list[list[float]] = []
        """Requests at each node, second by second."""
        self._scenario, self._line = scenario, line
        self._places = [
            Place(source="scenario", latitude=r.latitude, longitude=r.longitude, continent=r.continent)
            for r in scenario.regions
        ]
        groups = [group for group in scenario.nodes for _ in range(group.count)]
        known = [_known(i, group, scenario) for i, group in enumerate(groups)]
        self._pools = [group.pool for group in groups]
        for i, group in enumerate(groups):
            faults = [fault for fault in scenario.faults if fault.node == i]
            if group.prefill_tokens_per_s is not None:
                self.nodes.append(Worker(group, self.clock, self._told, faults, scenario.block_tokens))
            else:
                server = Server(group, self.clock, self._told, faults)
                self.nodes.append(server)
                if group.antagonist is not None:
                    walk(server, group.antagonist, self.clock, random)
        self._addresses = {node.address: i for i, node in enumerate(known)}
        fleet = policy.Fleet(known)
        self._way_s = np.array([_ways_s(place, fleet) for place in self._places])
        self.homes = _homes(scenario, groups)
        capacities = [max(1, group.cache_blocks) for group in groups]
        turns = random.integers(1 << 32, size=scenario.routers.count)
        self.routers = [_Router(known, line, capacities, int(turn)) for turn in turns]
        self._leases: dict[int, Lease | None] = {}
        for r, router in enumerate(self.routers):
            self.clock.at(0.0, self._tick, router)
            if scenario.routers.scrape_s is not None:  # replicas do not march in step
                self.clock.at(scenario.routers.scrape_s * r / len(self.routers), self._scrape, router)
        self.clock.at(scenario.warm_up_s + TICK_S, self._watch)
        self._begin(groups, random)

    @property
    def open(self) -> bool:
        """Some requests have not ended."""
        return bool(self._leases)

    def _begin(self, groups: Sequence[Group], random: np.random.Generator) -> None:
        """What the nodes have before the first request arrives, as if the first router had sent it."""
        law = self._scenario.load.service
        for i, group in enumerate(groups):
            for _ in range(group.start):
                job = Job(at=0.0, node=i, service_s=float(random.exponential(law.mean)) if law else 0.0)
                self.jobs.append(job)
                self._goes(self.routers[0], job, 0.0)

    def arrives(self, job: Job) -> None:
        """A client asks one of the routers."""
        router = self.routers[len(self.jobs) % len(self.routers)]
        self.jobs.append(job)
        router.turn += 1
        request = Request(path="/", api="chat", prompt_tokens=job.prompt_tokens, turn=router.turn)
        features = self._features(router, job)
        outcome = decide(request, features, router.live.fleet, self._line.rules)
        if isinstance(outcome, Shed):
            job.failed, job.ended = True, self.clock.now
            return
        job.node = self._addresses[outcome.node.address]
        cached = 0.0 if features.cached is None else float(features.cached[job.node])
        self._goes(router, job, max(0.0, job.prompt_tokens - cached))

    def _goes(self, router: _Router, job: Job, unread_tokens: float) -> None:
        address = router.live.fleet.nodes[job.node].address
        self._leases[id(job)] = router.live.sent(address, self.clock.now, unread_tokens)
        if job.blocks:
            router.ledger.sent(job.node, job.blocks)
        self.clock.after(self._way(job), self.nodes[job.node].take, job)
        self.clock.after(self._scenario.timeout_s, self._gives_up, job)

    def _features(self, router: _Router, job: Job) -> Features:
        knows = self._line.knows
        intent = Intent(job.intent, 0.9, 0.9, job.intent) if job.intent and "meaning" in knows else None
        place = self._places[job.region] if job.region >= 0 and "place" in knows else None
        cached: Floats | None = None
        if job.blocks and "cache" in knows:
            cached = router.ledger.matched(job.blocks) * float(self._scenario.block_tokens)
        return Features(intent=intent, place=place, cached=cached)

    def _way(self, job: Job) -> float:
        """One way, in seconds."""
        return float(self._way_s[job.region][job.node]) if job.region >= 0 else 0.0

    def _told(self, job: Job, what: str) -> None:
        """Something happened at the node; the client, and the router on the way, hear of it later."""
        self.clock.after(self._way(job), self._heard, job, what)

    def _heard(self, job: Job, what: str) -> None:
        if not math.isnan(job.ended):
            return  # the client has given up
        now, lease = self.clock.now, self._leases[id(job)]
        if what == "failed":
            self._over(job, failed=True)
            return
        if math.isnan(job.began):
            job.began = now
            if lease is not None:
                lease.began(now)
        if what == "ended":
            self._over(job, failed=False)

    def _gives_up(self, job: Job) -> None:
        if math.isnan(job.ended):
            self._over(job, failed=True)

    def _over(self, job: Job, *, failed: bool) -> None:
        job.failed, job.ended = failed, self.clock.now
        lease = self._leases.pop(id(job))
        if lease is not None:
            lease.ended(self.clock.now, failed=failed)

    def _tick(self, router: _Router) -> None:
        router.live.tick(self.clock.now)
        self.clock.after(TICK_S, self._tick, router)

    def _scrape(self, router: _Router) -> None:
        for address, i in self._addresses.items():
            node = self.nodes[i]
            load = policy.Load(running=float(node.running), waiting=float(node.waiting), memory=node.memory)
            router.live.observed(address, load, self.clock.now)
        self.clock.after(self._scenario.routers.scrape_s or math.inf, self._scrape, router)

    def _watch(self) -> None:
        if self.clock.now <= self._scenario.seconds:
            self.watched.append([float(node.running + node.waiting) for node in self.nodes])
            self.clock.after(TICK_S, self._watch)


def _known(i: int, group: Group, scenario: Scenario) -> policy.Node:
    region = next((r for r in scenario.regions if r.name == group.region), None)
    return policy.Node(
        address=f"node-{i}:1",
        pool=group.pool,
        qps_limit=group.qps_limit,
        region=group.region,
        continent=region.continent if region else None,
        latitude=region.latitude if region else None,
        longitude=region.longitude if region else None,
    )


def _ways_s(place: Place, fleet: policy.Fleet) -> Floats:
    start = geo.origin(place, fleet)
    if start is None:
        return np.zeros(len(fleet))
    km = np.nan_to_num(geo.distances_km(start, fleet.positions))
    return km * geo.RTT_MS_PER_KM / 2000.0


def _homes(scenario: Scenario, groups: Sequence[Group]) -> list[set[int]]:
    """For clients of each region, the nodes that stand in it."""
    return [{i for i, group in enumerate(groups) if group.region == region.name} for region in scenario.regions]
