"""What is simulated, as data: a file is read into these. Seconds, tokens and requests a second throughout."""

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from policy.rules import Rules

Positive = Annotated[float, Meta(gt=0.0)]
Law = Literal["constant", "exponential", "normal", "lognormal"]


class Draw(Struct, frozen=True, forbid_unknown_fields=True):
    """A number drawn anew for each request: *sd* in the unit of *mean*."""

    mean: Positive
    sd: Annotated[float, Meta(ge=0.0)] = 0.0
    law: Law = "constant"


class Prefixes(Struct, frozen=True, forbid_unknown_fields=True):
    """Prompts that begin alike: which prefix is drawn by Zipf's law, the rest of the prompt is new."""

    count: Annotated[int, Meta(ge=1)]
    zipf: Annotated[float, Meta(ge=0.0)] = 1.0
    tokens: Annotated[int, Meta(ge=1)] = 4096
    repeated: Annotated[float, Meta(ge=0.0, le=1.0)] = 1.0
    """Share of requests that begin with one of the prefixes at all."""


class Intent(Struct, frozen=True, forbid_unknown_fields=True):
    """A share of the requests, and the pool they are best served by."""

    name: str
    share: Positive
    pool: str
    output: Draw | None = None


class Region(Struct, frozen=True, forbid_unknown_fields=True):
    """Where nodes stand and clients live."""

    name: str
    latitude: float
    longitude: float
    continent: str
    clients: Annotated[float, Meta(ge=0.0)] = 1.0
    """Share of the clients, in proportion."""


class Load(Struct, frozen=True, forbid_unknown_fields=True):
    """What arrives. *service* is for nodes that only take time, *prompt* and *output* for those that read and write."""

    requests_per_s: Positive = 1.0
    arrivals: Literal["poisson", "even"] = "poisson"
    service: Draw | None = None
    prompt: Draw | None = None
    output: Draw | None = None
    prefixes: Prefixes | None = None
    intents: tuple[Intent, ...] = ()
    trace: str | None = None
    """A file of recorded requests in the traces folder, instead of all above."""
    start_s: Annotated[float, Meta(ge=0.0)] = 0.0


class Antagonist(Struct, frozen=True, forbid_unknown_fields=True):
    """Others on the same machine: a random walk over shares of its slots."""

    shares: tuple[float, ...]
    dwell_s: Positive
    up: Annotated[float, Meta(ge=0.0, le=1.0)]
    """Chance that a step goes up, each group of nodes its own."""


class Group(Struct, frozen=True, forbid_unknown_fields=True):
    """Nodes that are alike."""

    count: Annotated[int, Meta(ge=1)]
    slots: Annotated[int, Meta(ge=0)] = 1
    """Requests served at once; 0: any number."""
    speed: Positive = 1.0
    prefill_tokens_per_s: Positive | None = None
    """Given: a node that reads prompts one after the other, and writes answers side by side."""
    decode_tokens_per_s: Positive = 50.0
    cache_blocks: Annotated[int, Meta(ge=0)] = 0
    region: str | None = None
    pool: str = "general"
    antagonist: Antagonist | None = None
    foreign: Positive = 1.0
    """A request whose intent belongs to another pool takes so many times as long: its adapter or cache is elsewhere."""
    start: Annotated[int, Meta(ge=0)] = 0
    """Requests each node has when the run begins."""
    qps_limit: Positive = 1e9


class Fault(Struct, frozen=True, forbid_unknown_fields=True):
    """What befalls *node* at *at*, for *seconds*. black_hole: no answer; error: one, after *service_s*; slow: every
    request takes *service_s*; factor: everything takes *factor* times as long."""

    kind: Literal["black_hole", "error", "slow", "factor"]
    node: Annotated[int, Meta(ge=0)]
    at: Annotated[float, Meta(ge=0.0)]
    seconds: Positive
    service_s: Annotated[float, Meta(ge=0.0)] = 0.0
    factor: Positive = 1.0


class Routers(Struct, frozen=True, forbid_unknown_fields=True):
    """Replicas of ours. Each knows what it sent itself; of the others it learns from the nodes' own figures."""

    count: Annotated[int, Meta(ge=1)] = 1
    scrape_s: Positive | None = None
    """How often those are read; None: never."""


Fact = Literal["meaning", "place", "cache"]


class Line(Struct, frozen=True, forbid_unknown_fields=True):
    """A line of the table: the rules in force, and what the routers know of a request."""

    rules: Rules = field(default_factory=Rules)
    knows: tuple[Fact, ...] = ("meaning", "place", "cache")


class Bar(Struct, frozen=True, forbid_unknown_fields=True):
    """A figure to meet, and whose it is. *measure* names a column of the results, *line* a line of the table."""

    measure: str
    line: str
    level: float = 1.0
    at_most: float | None = None
    at_least: float | None = None
    relative_to: str | None = None
    """A line of the same run: the bar is a multiple of its figure. `others`: of the best figure of all other lines."""
    source: str = ""


class Scenario(Struct, frozen=True, forbid_unknown_fields=True):
    """One experiment."""

    name: str
    what: str
    seconds: Positive
    nodes: tuple[Group, ...]
    load: Load
    lines: dict[str, Line]
    warm_up_s: Annotated[float, Meta(ge=0.0)] = 0.0
    """Requests that come before are served and not counted."""
    timeout_s: Positive = 60.0
    """A client gives up after."""
    goal_s: Positive | None = None
    """Answers that are whole by then are counted (`within goal`)."""
    round_s: Positive | None = None
    """Given: the entropy of the load in each round of this length (`H round 1`…), in bits."""
    block_tokens: Annotated[int, Meta(ge=1)] = 512
    regions: tuple[Region, ...] = ()
    faults: tuple[Fault, ...] = ()
    routers: Routers = field(default_factory=Routers)
    levels: tuple[float, ...] = (1.0,)
    """The load is run at each multiple of its rate."""
    bars: tuple[Bar, ...] = ()

    def __post_init__(self) -> None:
        for bar in self.bars:
            for line in (bar.line, bar.relative_to):
                if line is not None and line != "others" and line not in self.lines:
                    raise ValueError(f"bars: there is no line {line!r}; lines: {', '.join(self.lines)}")
            if bar.level not in self.levels:
                raise ValueError(f"bars: there is no level {bar.level}; levels: {', '.join(map(str, self.levels))}")
        if (node := max((fault.node for fault in self.faults), default=0)) >= sum(g.count for g in self.nodes):
            raise ValueError(f"faults: there is no node {node}")
