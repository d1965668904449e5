"""Every knob of the decision, each with its range, its unit and the reason for its default."""

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from policy import areas
from policy.types import Name

Share = Annotated[float, Meta(ge=0.0, le=1.0)]
Strategy = Literal[
    "router_balancing",
    "time_to_first_token",
    "least_request",
    "power_of_two",
    "peak_ewma",
    "prequal",
    "prefix_match",
    "round_robin",
]


class Pool(Struct, frozen=True, forbid_unknown_fields=True):
    """Nodes serving one purpose: the intents that belong there and the model that `auto` becomes."""

    model: Annotated[str, Meta(min_length=1, max_length=256)] | None = None
    intents: tuple[str, ...] = ()


class Watermarks(Struct, frozen=True, forbid_unknown_fields=True):
    """Share of KV cache in use: above *high* a node takes no new work, until it is back under *low*."""

    low: Share = 0.80
    high: Share = 0.92

    def __post_init__(self) -> None:
        if self.low >= self.high:
            raise ValueError(f"watermarks.low ({self.low}) must be under watermarks.high ({self.high})")


class Balance(Struct, frozen=True, forbid_unknown_fields=True):
    """`router_balancing`: qps·(1 − qps/limit) + memory·(1 − memory); the other pair when memory is short.

    Design formula 2: when the fleet's mean memory is strictly above *pressed_above* the weights turn round.
    """

    qps: Share = 0.6
    memory: Share = 0.4
    pressed_qps: Share = 0.3
    pressed_memory: Share = 0.7
    pressed_above: Share = 0.85
    entropy: bool = True
    """Lean towards nodes with a smaller share of the requests (design formula 1)."""
    latency: bool = True
    """Lean towards nodes with a lower P99 (design formula 3)."""


class FirstToken(Struct, frozen=True, forbid_unknown_fields=True):
    """`time_to_first_token`: seconds from the client to the first token; each term can be left out."""

    prefill_tokens_per_s: Annotated[float, Meta(gt=0.0)] = 8000.0
    """How fast a node reads prompts, where nobody measured it."""
    pressure_s: Annotated[float, Meta(ge=0.0, le=60.0)] = 1.0
    """What a full KV cache costs: requests wait or are pushed out; from the low watermark on, in proportion."""
    request_s: Annotated[float, Meta(ge=0.0, le=10.0)] = 0.002
    """What each request at a node, running or waiting, costs the next one beside its prompt."""
    error_s: Annotated[float, Meta(ge=0.0, le=600.0)] = 5.0
    """What a request that fails costs, times the share of a node's answers that lately were its errors."""
    spread: Annotated[float, Meta(ge=1.0)] = 2.0
    """A node with more than so many times the mean of requests (and a few more) comes behind all others."""
    equal_s: Annotated[float, Meta(ge=0.0)] = 0.005
    """Nodes within so much of the best share the work, so that routers that see the same do not do the same."""
    place: bool = True
    queue: bool = True
    cache: bool = True
    pressure: bool = True
    late: bool = True
    """What a node's answers lately took beyond twice the fleet's middle P99: it is slow, whatever its queue says."""
    guard: bool = True


class Prefix(Struct, frozen=True, forbid_unknown_fields=True):
    """`prefix_match`: the node that has most of the prompt, if that is enough and the node not much busier."""

    floor: Share = 0.1
    """A smaller share of the prompt counts as none: one system prompt that all share must not decide."""
    spread: Annotated[float, Meta(ge=1.0)] = 2.0


class Residency(Struct, frozen=True, forbid_unknown_fields=True):
    """Requests that may be answered in *stay* and nowhere else, whatever else speaks for another node.

    Areas are countries (ISO 3166-1: DE), blocs (EU, EEA) and continents by name (Europe). All rules that concern a
    request hold at once. A rule of neither *clients* nor *tenants* concerns every request; one of both, the requests
    of these tenants from there.
    """

    stay: Annotated[tuple[str, ...], Meta(min_length=1)]
    clients: tuple[str, ...] = ()
    """Areas the request comes from."""
    tenants: tuple[str, ...] = ()
    """Values of `sessions.tenant_header`."""
    unknown: bool = True
    """A request nobody knows the client's country (or the tenant) of counts as one of them."""

    def __post_init__(self) -> None:
        for name in ("stay", "clients"):
            try:
                areas.countries(getattr(self, name))
            except ValueError as exc:
                raise ValueError(f"residency.{name}: {exc}") from None


class Rules(Struct, frozen=True, forbid_unknown_fields=True):
    """What the operator decided once, for every request."""

    strategy: Strategy = "time_to_first_token"
    pools: dict[Name, Pool] = field(default_factory=dict)
    general: Name = "general"
    """The pool for requests of no clear intent, and the one that helps out when another is full."""
    auto_model: Annotated[str, Meta(min_length=1, max_length=256)] = "auto"
    """The model name by which a client leaves the choice to us."""
    choices: Annotated[int, Meta(ge=1, le=16)] = 2
    """`power_of_two`: of how many drawn candidates the least loaded is taken; 1 is random."""
    near_km: Annotated[float, Meta(gt=0.0, le=20_000.0)] = 50.0
    """Nodes no further than this beyond the nearest count as equally near (design formula 4)."""
    residency: tuple[Residency, ...] = ()
    balance: Balance = field(default_factory=Balance)
    first_token: FirstToken = field(default_factory=FirstToken)
    prefix: Prefix = field(default_factory=Prefix)
    watermarks: Watermarks = field(default_factory=Watermarks)
    fallbacks: Annotated[int, Meta(ge=0, le=8)] = 0
    """How many of the next best nodes are named behind the first (`a,b,c`), for Envoy's retries to follow. None by
    default: some gateways read one address only."""
    follow_up_chars: Annotated[int, Meta(ge=0, le=10_000)] = 80
    """A follow-up turn of at most so many characters keeps its conversation's intent."""
    strict_context: bool = False
    """Refuse (409) a request whose context version is older than the session has seen."""

    def __post_init__(self) -> None:
        owner: dict[str, str] = {}
        for pool, its in self.pools.items():
            for intent in its.intents:
                if intent in owner:
                    raise ValueError(
                        f"intent {intent!r} is in pool {owner[intent]!r} and in {pool!r}: give it one pool"
                    )
                owner[intent] = pool

    def pool_of(self, intent: str | None) -> str:
        """The pool *intent* belongs to; the general one for an intent of none."""
        if intent is not None:
            for name, its in self.pools.items():
                if intent in its.intents:
                    return name
        return self.general
