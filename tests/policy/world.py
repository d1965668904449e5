"""A fleet by hand: bend one thing, look at the decision."""

from typing import Any

from policy.engine import decide, explain
from policy.rules import Pool, Rules
from policy.types import Binding, Decision, Features, Fleet, Intent, Load, Node, Place, Request, Shed

LONDON = (51.5, -0.1)
PARIS = (48.86, 2.35)
NEW_YORK = (40.7, -74.0)
SINGAPORE = (1.35, 103.8)


def node(name: str, at: tuple[float, float] | None = None, **changes: Any) -> Node:
    latitude, longitude = at or (None, None)
    return Node(address=f"{name}:8000", latitude=latitude, longitude=longitude, **changes)


def idle(**changes: Any) -> Load:
    return Load(**{"running": 0.0, "waiting": 0.0, "memory": 0.1, "qps": 1.0, **changes})


def fleet(*nodes: Node, **loads: Load) -> Fleet:
    return Fleet(nodes, {f"{name}:8000": load for name, load in loads.items()})


def of(**loads: Load) -> Fleet:
    """Nodes of nothing but a name and a load."""
    return fleet(*(node(name) for name in loads), **loads)


def intent(name: str | None, confidence: float = 0.9, nearest: str = "coding") -> Intent:
    return Intent(name, confidence, 0.5, name or nearest)


def place(at: tuple[float, float] | None = None, **fields: Any) -> Place:
    latitude, longitude = at or (None, None)
    return Place(source="test", latitude=latitude, longitude=longitude, **fields)


def chat(**changes: Any) -> Request:
    return Request(**{"path": "/v1/chat/completions", "api": "chat", **changes})


def bound(name: str, **changes: Any) -> Binding:
    return Binding(**{"node": f"{name}:8000", "identity": f"{name}:8000", **changes})


def rules(strategy: str = "router_balancing", **changes: Any) -> Rules:
    return Rules(strategy=strategy, **changes)  # type: ignore[arg-type]


POOLS = {"code": Pool(model="coder", intents=("coding", "math")), "general": Pool(model="talker")}


def decided(
    where: Fleet, request: Request | None = None, features: Features | None = None, by: Rules | None = None
) -> Decision | Shed:
    return decide(request or chat(), features or Features(), where, by or rules())


def reasons(
    where: Fleet, request: Request | None = None, features: Features | None = None, by: Rules | None = None
) -> tuple[str, ...]:
    return explain(request or chat(), features or Features(), where, by or rules()).because


def picked(*args: Any, **kwargs: Any) -> str:
    outcome = decided(*args, **kwargs)
    assert isinstance(outcome, Decision), outcome
    return outcome.node.address.removesuffix(":8000")
