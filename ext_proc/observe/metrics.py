"""What is counted, for Prometheus."""

from collections.abc import Iterator
from itertools import pairwise

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from ext_proc.parse import Parsed
from ext_proc.usage import Usage
from policy.types import Decision, Features

_SECONDS = (0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256)


class Metrics:
    """One registry a process: nothing is global, so tests and workers do not meet."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._children: dict[tuple[Counter, tuple[str, ...]], Counter] = {}
        self._requests = Counter("isogloss_requests", "Requests read, by API.", ["api"], registry=self.registry)
        self._decisions = Counter(
            "isogloss_decisions", "Decisions taken.", ["pool", "region", "tier"], registry=self.registry
        )
        self._intents = Counter("isogloss_intents", "Intents of decided requests.", ["intent"], registry=self.registry)
        self._sheds = Counter(
            "isogloss_sheds", "Requests answered by us, by reason.", ["reason"], registry=self.registry
        )
        self._places = Counter(
            "isogloss_places", "Places of decided requests, by how they were found.", ["source"], registry=self.registry
        )
        self._missing = Counter(
            "isogloss_source_missing", "Sources that gave no answer in time.", ["source"], registry=self.registry
        )
        self._tokens = Counter(
            "isogloss_tokens", "Tokens of answers that a gateway shows us.", ["kind"], registry=self.registry
        )
        self._blocks = Counter(
            "isogloss_prefix_blocks",
            "Blocks of prompts, and those thought to be cached.",
            ["kind"],
            registry=self.registry,
        )
        self._events = Counter("isogloss_events", "Things worth knowing.", ["event"], registry=self.registry)
        self._seconds = Histogram(
            "isogloss_decision_seconds", "From complete input to answer.", buckets=_SECONDS, registry=self.registry
        )
        stages = Histogram(
            "isogloss_stage_seconds",
            "Parts of that: read, gather, decide.",
            ["stage"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._stages = [stages.labels(stage) for stage in ("read", "gather", "decide")]
        self.streams = Gauge("isogloss_streams", "ext_proc streams open.", registry=self.registry)
        self._sources: list[tuple[str, object, tuple[str, ...]]] = []
        self.registry.register(self)

    def show(self, collector: Collector) -> None:
        """Something else for the page, asked when somebody looks."""
        self.registry.register(collector)

    def watch(self, name: str, source: object, *events: str) -> None:
        """Show what *source* counts for itself: *events* are attributes of it, plain numbers that only grow."""
        for event in events:
            getattr(source, event)
        self._sources.append((name, source, events))

    def collect(self) -> Iterator[CounterMetricFamily]:
        """What sources have counted, read when somebody looks. For the registry."""
        family = CounterMetricFamily(
            "isogloss_source_events", "What happened to sources of facts.", labels=["source", "event"]
        )
        for name, source, events in self._sources:
            for event in events:
                family.add_metric([name, event], getattr(source, event))
        yield family

    def count(self, event: str) -> None:
        """Something that is neither a decision nor a shed. *event* is one of our own words, never a client's."""
        self._plus(self._events, event)

    def _plus(self, counter: Counter, *labels: str) -> None:
        """One more. Finding a labelled child costs more than counting: each is found once."""
        child = self._children.get((counter, labels))
        if child is None:
            child = self._children[counter, labels] = counter.labels(*labels)
        child.inc()

    def read(self, parsed: Parsed) -> None:
        """A request was read."""
        self._plus(self._requests, parsed.request.api or "other")
        if parsed.malformed:
            self.count("malformed-body")
        if parsed.cut:
            self.count("text-cut")
        if parsed.ignored_hints:
            self.count("hint-ignored")

    def decided(self, decision: Decision, features: Features, *times: float) -> None:
        """A node was chosen. *times*: when we began, had read, had gathered, had decided, in seconds."""
        self._plus(self._decisions, decision.node.pool, decision.node.region or "", decision.tier)
        self._plus(self._intents, decision.intent or "none")
        self._plus(self._places, features.place.source if features.place is not None else "none")
        for source in features.missing:
            self._plus(self._missing, source)
        if decision.conflict:
            self.count("context-conflict")
        for stage, (start, end) in zip(self._stages, pairwise(times), strict=True):
            stage.observe(end - start)
        self._seconds.observe(times[-1] - times[0])

    def used(self, usage: Usage) -> None:
        """An answer passed by."""
        for kind in ("prompt", "completion", "cached"):
            if tokens := getattr(usage, kind):
                self._tokens.labels(kind).inc(tokens)

    def prefix(self, asked: int, cached: float) -> None:
        """A prompt of *asked* whole blocks went to a node thought to have *cached* of them."""
        if asked:
            self._blocks.labels("asked").inc(asked)
            self._blocks.labels("cached").inc(cached)

    def shed(self, reason: str) -> None:
        """We answered the client ourselves."""
        self._plus(self._sheds, reason)

    def page(self) -> bytes:
        """The exposition text."""
        return generate_latest(self.registry)
