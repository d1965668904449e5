"""The values a decision is made of: what was asked, what is known, who can answer, what was decided."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Annotated, Literal, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from policy import areas

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Indices = NDArray[np.intp]
K = TypeVar("K")

Name = Annotated[str, msgspec.Meta(pattern=r"^[!-~]{1,128}\Z")]
"""A name that travels in a header: visible ASCII."""

Continent = Annotated[str, msgspec.Meta(pattern=r"^(AF|AN|AS|EU|NA|OC|SA)\Z")]
"""As in GeoLite2; another spelling would make every node one abroad."""

Country = Annotated[str, msgspec.Meta(pattern=r"^[A-Z]{2}\Z")]
"""ISO 3166-1, two capitals; `areas` knows them all."""

Modality = Literal["text", "image+text", "audio+text"]
Tier = Literal["normal", "degraded", "last-resort"]
"""How much of what a good decision needs was there.

normal: every source asked gave its answer, and the node is of the right pool.
degraded: a source gave no answer in time, or the node is of another pool than the intent's.
last-resort: only nodes without headroom were left.
"""


class Hint(msgspec.Struct, frozen=True):
    """One wish of the client: a preference, or a condition when *required*."""

    key: str
    value: str
    required: bool = False


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What the client asked, as far as headers and body say."""

    path: str
    method: str = "POST"
    api: str | None = None
    """Which API the path belongs to; None: none that asks a model anything."""
    model: str | None = None
    """The model the client named; None when it named none, or the body could not be read."""
    auto: bool = False
    """The client leaves the model to us."""
    stream: bool = False
    modality: Modality = "text"
    prompt_tokens: int = 0
    """An estimate: four bytes of text to a token."""
    max_tokens: int | None = None
    asked: int = 0
    """Characters in the last user turn."""
    follow_up: bool = False
    """There are earlier user turns in the body."""
    hints: tuple[Hint, ...] = ()
    context_version: int | None = None
    subset: tuple[str, ...] | None = None
    """Addresses a gateway restricts us to; None: no restriction; empty: none is eligible."""
    tenants: tuple[str, ...] = ()
    """Whose request it is, where a rule asks; empty: not known. More than one when the header came twice."""
    turn: int = 0
    """The router's own count of requests: the only source of variety a decision has."""


class Intent(msgspec.Struct, frozen=True):
    """What the request is about. *name* is None when the clusters are unsure."""

    name: str | None
    confidence: float
    similarity: float
    nearest: str
    bundle: str = ""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where the client is. A field nobody knows is None, never 0.0 or ''."""

    source: str
    latitude: float | None = None
    longitude: float | None = None
    country: str | None = None
    continent: str | None = None
    region: str | None = None
    """A region by the fleet's own name, as a proxy's locality gives it."""
    zone: str | None = None
    asn: int | None = None
    """The number of the network it is in, and who runs that."""
    organisation: str | None = None


class Binding(msgspec.Struct, frozen=True):
    """What a session remembers: its node, its intent, how far its conversation had come, and when it began."""

    node: str
    identity: str
    intent: str | None = None
    context_version: int | None = None
    began: float | None = None
    """Seconds on the clock of the store that gave it; None: now."""


class Features(msgspec.Struct, frozen=True, kw_only=True):
    """What the sources knew about one request by the deadline."""

    intent: Intent | None = None
    place: Place | None = None
    binding: Binding | None = None
    cached: Floats | None = None
    """Tokens of this prompt that each node of the fleet has in its cache, [n]; None: nobody looked."""
    missing: tuple[str, ...] = ()
    """Sources that were asked and did not answer in time."""


class Node(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One vLLM endpoint. *identity* outlives nothing: another pod on the same address is another node."""

    address: str
    """`ip:port`, IPv6 in brackets: the very bytes Envoy knows the host by."""
    pool: Name = "general"
    models: tuple[str, ...] = ()
    """Served model names, aliases included; empty: whatever is asked."""
    identity: str = ""
    region: Name | None = None
    zone: Name | None = None
    country: Country | None = None
    """Where its data stays; a node that does not say meets no residency rule."""
    continent: Continent | None = None
    """None: its country's."""
    latitude: Annotated[float, msgspec.Meta(ge=-90.0, le=90.0)] | None = None
    longitude: Annotated[float, msgspec.Meta(ge=-180.0, le=180.0)] | None = None
    modalities: tuple[Modality, ...] = ("text",)
    context_length: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """Tokens of prompt and answer together; None: unknown, so nothing is too long."""
    qps_limit: Annotated[float, msgspec.Meta(gt=0.0)] = 10.0
    """Requests per second at which the node counts as full."""
    draining: bool = False

    def __post_init__(self) -> None:
        if self.country is not None and areas.continent_of(self.country) is None:
            raise ValueError(f"country {self.country!r} of node {self.address} is none of ISO 3166-1")

    @property
    def key(self) -> str:
        """What a session remembers the node by."""
        return self.identity or self.address


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """How busy one node is. None: not known."""

    running: float | None = None
    waiting: float | None = None
    memory: float | None = None
    """Share of KV cache (or GPU memory) in use, 0 to 1."""
    qps: float | None = None
    """Requests per second over the last 60 s."""
    sent: float = 0.0
    """Requests we sent since the figures above were read."""
    inflight: float | None = None
    """Requests of ours that have not ended, where ends are seen."""
    queued_tokens: float | None = None
    """Prompt tokens ahead of a new request, still to be read by the node."""
    prefill_rate: float | None = None
    """Prompt tokens the node reads in a second."""
    latency_ms: float | None = None
    """Half of the answers begin sooner; 99 of 100 do within *p99_ms*; *peak_ms* follows slow ones at once."""
    p99_ms: float | None = None
    peak_ms: float | None = None
    error_rate: float | None = None
    warm: float = 1.0
    """How far a new node has come in its slow start, 0 to 1."""


class Fleet:
    """Every node with its load, as columns: row *i* of each array is `nodes[i]`. NaN: not known.

    The columns of place, pool and models are built once per topology and shared by `with_loads`;
    a decision reads them and never writes.
    """

    def __init__(self, nodes: Iterable[Node], loads: Mapping[str, Load] | None = None, *, high: float = 0.92):
        self.nodes = tuple(nodes)
        self.by_address = {node.address: i for i, node in enumerate(self.nodes)}
        if len(self.by_address) != len(self.nodes):
            twice, _ = Counter(node.address for node in self.nodes).most_common(1)[0]
            raise ValueError(f"node {twice} is listed twice: every address once")
        self.by_ip = _together(node.address.rpartition(":")[0] for node in self.nodes)
        self.model_names = tuple(sorted({name for node in self.nodes for name in node.models}))
        self._by_model: dict[str, Bools | None] = {}
        self.every: Bools = np.ones(len(self.nodes), dtype=np.bool_)
        self.pools = _groups(node.pool for node in self.nodes)
        self.regions = _groups(node.region for node in self.nodes)
        self.zones = _groups(node.zone for node in self.nodes)
        self.continents = _groups(node.continent or areas.continent_of(node.country) for node in self.nodes)
        self.country_of = _countries(self.nodes)
        """The country all nodes of a region say they are in; regions whose nodes say none, or several, are left out."""
        self._within: dict[frozenset[str], Bools] = {}
        self.positions = _positions(self.nodes)
        self.context_length = _column(node.context_length for node in self.nodes)
        self.shortest_context = min((n.context_length for n in self.nodes if n.context_length), default=math.inf)
        self.qps_limit = _column(node.qps_limit for node in self.nodes)
        draining = [node.draining for node in self.nodes]
        self.draining: Bools | None = np.array(draining, dtype=np.bool_) if any(draining) else None
        """Nodes on their way out; None: no node is."""
        of = loads or {}
        rows = [of.get(node.address, _UNKNOWN) for node in self.nodes]
        self.running = _column(row.running for row in rows)
        self.waiting = _column(row.waiting for row in rows)
        self.memory = _column(row.memory for row in rows)
        self.qps = _column(row.qps for row in rows)
        self.sent = _column(row.sent for row in rows)
        self.inflight = _column(row.inflight for row in rows)
        self.queued_tokens = _column(row.queued_tokens for row in rows)
        self.prefill_rate = _column(row.prefill_rate for row in rows)
        self.latency_ms = _column(row.latency_ms for row in rows)
        self.p99_ms = _column(row.p99_ms for row in rows)
        self.peak_ms = _column(row.peak_ms for row in rows)
        self.error_rate = _column(row.error_rate for row in rows)
        self.warm = _column(row.warm for row in rows)
        p99s = self.p99_ms[~np.isnan(self.p99_ms)]
        self.usual_ms = float(np.median(p99s)) if p99s.size else math.nan
        """The fleet's middle P99: what takes longer is slow for this fleet, though some nodes be slow."""
        self.full: Bools = self.memory > high
        """Over the high watermark and not yet back under the low one: takes no new work."""
        self.dead: Bools = np.zeros(len(self.nodes), dtype=np.bool_)
        """Nobody listens there, as far as was seen."""

    def __len__(self) -> int:
        return len(self.nodes)

    def serving(self, model: str) -> Bools | None:
        """Which nodes serve *model* (a node that lists no models serves any), None: all. Remembered for known names."""
        if model in self._by_model:
            return self._by_model[model]
        serves = [not node.models or model in node.models for node in self.nodes]
        mask = None if all(serves) else np.array(serves, dtype=np.bool_)
        if model in self.model_names:  # a client's invented names must not fill the memory
            self._by_model[model] = mask
        return mask

    def within(self, countries: frozenset[str]) -> Bools:
        """Nodes known to be in one of *countries*. Remembered: only rules ask, so there are few sets."""
        if countries not in self._within:
            self._within[countries] = np.array([node.country in countries for node in self.nodes], dtype=np.bool_)
        return self._within[countries]


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The node, who comes after it, and why."""

    node: Node
    fallbacks: tuple[Node, ...]
    model: str | None
    """The model to write into the body; None: leave the body alone."""
    intent: str | None
    tier: Tier
    confidence: float
    stuck: bool = False
    """The session's own node was chosen again."""
    conflict: bool = False
    """The request carries an older context version than the session has seen."""


class Shed(msgspec.Struct, frozen=True, kw_only=True):
    """No node for this request, and why."""

    reason: Literal["no-nodes", "unknown-model", "context-conflict", "hint", "subset", "residency"]
    detail: str
    dropped: Mapping[str, int] = {}


_UNKNOWN = Load()


def _column(values: Iterable[float | None]) -> Floats:
    return np.array([np.nan if v is None else v for v in values], dtype=np.float64)


def _groups(values: Iterable[K]) -> Mapping[K, Bools]:
    rows = list(values)
    return {key: np.array([row == key for row in rows], dtype=np.bool_) for key in dict.fromkeys(rows)}


def _together(values: Iterable[K]) -> Mapping[K, list[int]]:
    """The rows of each value; unlike `_groups` for values that nearly all differ."""
    rows: dict[K, list[int]] = {}
    for i, value in enumerate(values):
        rows.setdefault(value, []).append(i)
    return rows


def _countries(nodes: tuple[Node, ...]) -> Mapping[str, str]:
    said: dict[str, set[str | None]] = {}
    for node in nodes:
        if node.region is not None:
            said.setdefault(node.region, set()).add(node.country)
    return {region: country for region, (country, *more) in said.items() if country is not None and not more}


def _positions(nodes: tuple[Node, ...]) -> Floats:
    """Unit vectors from the earth's centre, [n, 3]; NaN where a node has no coordinates."""
    degrees = np.array(
        [(np.nan if n.latitude is None else n.latitude, np.nan if n.longitude is None else n.longitude) for n in nodes],
        dtype=np.float64,
    ).reshape(-1, 2)
    lat, lon = np.radians(degrees).T
    return np.stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)], axis=1)
