"""Where the data of a request may go: the rules that concern it, and the nodes that meet them all."""

import numpy as np

from policy import areas
from policy.rules import Residency
from policy.types import Bools
from policy.view import View


def eligible(view: View) -> Bools | None:
    """Nodes in a country that every rule on this request allows, [n]; None: no rule concerns it."""
    rules = concerning(view)
    if not rules:
        return None
    masks = [view.fleet.within(areas.countries(rule.stay)) for rule in rules]
    return np.logical_and.reduce(masks)  # type: ignore[no-any-return]  # numpy's stubs say Any


def concerning(view: View) -> tuple[Residency, ...]:
    """The rules this request is under."""
    if not view.rules.residency:
        return ()
    origin = _origin(view)
    return tuple(rule for rule in view.rules.residency if _by_tenant(rule, view) and _by_client(rule, origin))


def in_words(rules: tuple[Residency, ...]) -> str:
    """`EU and DE`."""
    return " and ".join(dict.fromkeys(", ".join(rule.stay) for rule in rules))


def _by_tenant(rule: Residency, view: View) -> bool:
    tenants = view.request.tenants
    if not rule.tenants:
        return True
    return any(tenant in rule.tenants for tenant in tenants) if tenants else rule.unknown


def _by_client(rule: Residency, origin: frozenset[str] | None) -> bool:
    if not rule.clients:
        return True
    concerned = areas.countries(rule.clients)
    if origin is None or not (origin <= concerned or origin.isdisjoint(concerned)):
        return rule.unknown
    return origin <= concerned


def _origin(view: View) -> frozenset[str] | None:
    """The countries the client can be in; None: nobody knows."""
    place = view.features.place
    if place is None:
        return None
    country = place.country
    if country is None and place.region is not None:
        country = view.fleet.country_of.get(place.region)
    if country is not None:
        return frozenset((country,))
    return None if place.continent is None else areas.on_continent(place.continent)
