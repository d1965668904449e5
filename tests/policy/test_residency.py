"""Data residency: whatever else speaks for a node, a request never leaves where it must stay."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policy import areas
from policy.engine import decide, explain
from policy.rules import Residency, Rules
from policy.strategies import STRATEGIES
from policy.types import Binding, Decision, Features, Fleet, Hint, Load, Node, Place, Request, Shed
from tests.policy.world import (
    NEW_YORK,
    PARIS,
    bound,
    chat,
    decided,
    fleet,
    idle,
    node,
    of,
    picked,
    place,
    reasons,
    rules,
)

STAYS_IN_EU = Residency(stay=("EU",))
OF_THE_EU = Residency(clients=("EU",), stay=("EU",))
ACME = Residency(tenants=("acme",), stay=("DE",))


def three(**loads: Load) -> Fleet:
    return fleet(node("de", country="DE"), node("us", NEW_YORK, country="US"), node("lost", PARIS), **loads)


def under(*residency: Residency, **changes) -> Rules:
    return rules(residency=residency, **changes)


def from_(country: str | None, **changes) -> Features:
    return Features(place=place(country=country), **changes)


def shed(*args, **kwargs) -> Shed:
    outcome = decided(*args, **kwargs)
    assert isinstance(outcome, Shed), outcome
    return outcome


def test_everything_stays():
    for turn in range(6):
        assert picked(three(), chat(turn=turn), by=under(STAYS_IN_EU, strategy="round_robin")) == "de"


def test_a_node_of_unknown_country_meets_no_rule():
    assert shed(fleet(node("lost", PARIS, continent="EU")), by=under(STAYS_IN_EU)).reason == "residency"


def test_requests_of_clients_in_the_eu_stay_and_others_are_free():
    near_us = three(de=idle(qps=9.0, memory=0.9))
    assert picked(near_us, features=from_("FR"), by=under(OF_THE_EU)) == "de"
    assert picked(near_us, features=from_("US"), by=under(OF_THE_EU, strategy="least_request")) in {"us", "lost", "de"}
    only_us = fleet(node("us", country="US"))
    assert picked(only_us, features=from_("US"), by=under(OF_THE_EU)) == "us"
    assert shed(only_us, features=from_("FR"), by=under(OF_THE_EU)).reason == "residency"


@pytest.mark.parametrize("known", [None, place(), place(PARIS), place(continent="EU"), place(region="nowhere")])
def test_a_client_of_unknown_country_counts_as_one_of_them_unless_the_rule_says_otherwise(known: Place | None):
    """On the continent of Europe one is in the Union or not."""
    only_us, features = fleet(node("us", country="US")), Features(place=known)
    assert shed(only_us, features=features, by=under(OF_THE_EU)).reason == "residency"
    lenient = Residency(clients=("EU",), stay=("EU",), unknown=False)
    assert picked(only_us, features=features, by=under(lenient)) == "us"


def test_a_continent_is_enough_where_it_settles_the_question():
    only_us = fleet(node("us", country="US"))
    assert picked(only_us, features=Features(place=place(continent="OC")), by=under(OF_THE_EU)) == "us"
    europe = Residency(clients=("Europe",), stay=("Europe",), unknown=False)
    assert shed(only_us, features=Features(place=place(continent="EU")), by=under(europe)).reason == "residency"


def test_a_caller_in_the_mesh_is_where_the_nodes_of_its_region_say_they_are():
    where = fleet(node("de", country="DE", region="eu-1"), node("us", country="US", region="us-1"))
    assert picked(where, chat(turn=1), Features(place=place(region="eu-1")), under(OF_THE_EU)) == "de"
    assert picked(fleet(*where.nodes[1:]), features=Features(place=place(region="us-1")), by=under(OF_THE_EU)) == "us"
    mixed = fleet(node("us", country="US", region="r"), node("ca", country="CA", region="r"))
    assert shed(mixed, features=Features(place=place(region="r")), by=under(OF_THE_EU)).reason == "residency"


def test_a_tenants_requests_stay_and_nobody_elses():
    for_all = under(ACME, strategy="round_robin")
    assert {picked(three(), chat(turn=t, tenants=("acme",)), by=for_all) for t in range(6)} == {"de"}
    assert {picked(three(), chat(turn=t, tenants=("other",)), by=for_all) for t in range(6)} == {"de", "us", "lost"}
    assert {picked(three(), chat(turn=t), by=for_all) for t in range(6)} == {"de"}
    assert picked(three(), chat(tenants=("other", "acme")), by=for_all) == "de"


def test_all_rules_that_concern_a_request_hold_at_once():
    both = under(OF_THE_EU, ACME)
    where = fleet(node("de", country="DE"), node("fr", country="FR"), node("us", country="US"))
    assert picked(where, chat(tenants=("acme",)), from_("FR"), both) == "de"
    abroad = under(Residency(tenants=("acme",), stay=("US",)), OF_THE_EU)
    outcome = shed(where, chat(tenants=("acme",)), from_("FR"), abroad)
    assert outcome.detail == (
        "This request must stay in US and EU (data residency), and no node there is available for it."
    )


def test_nothing_outweighs_it():
    """Not a session, a retry, a required hint, a subset, or a fleet without headroom."""
    by = under(STAYS_IN_EU, fallbacks=3)
    full = of_ = three(de=idle(memory=0.99, qps=99.0), us=idle())
    assert picked(full, by=by) == "de"
    assert picked(of_, chat(context_version=3), from_("FR", binding=bound("us", context_version=3)), by) == "de"
    assert "session released: its node is not eligible for this request" in reasons(
        full, chat(), from_("FR", binding=bound("us")), by
    )
    assert shed(full, chat(hints=(Hint("node", "us:8000", required=True),)), by=by).reason == "residency"
    assert picked(full, chat(hints=(Hint("node", "us:8000"),)), by=by) == "de"
    assert shed(full, chat(subset=("us:8000",)), by=by).reason == "residency"


def test_it_is_the_reason_only_where_it_alone_is_in_the_way():
    where = fleet(node("de", country="DE", draining=True), node("us", country="US", models=("m",)))
    assert shed(where, by=under(STAYS_IN_EU)).reason == "residency"
    assert shed(where, chat(model="nope"), by=under(STAYS_IN_EU)).reason == "unknown-model"
    assert shed(of(), by=under(STAYS_IN_EU)).reason == "no-nodes"


def test_it_is_explained():
    told = explain(chat(), from_("FR"), three(), under(OF_THE_EU))
    assert "must stay in EU" in told.because
    assert told.dropped == {"residency": ("us:8000", "lost:8000")}


def test_the_union_is_not_the_continent_and_knows_its_far_parts():
    union, europe = areas.countries(("EU",)), areas.countries(("Europe",))
    assert len(union & europe) == 26 + 1  # all members but Cyprus, and Åland
    assert {"CY", "RE", "GF"} <= union
    assert not {"GB", "CH", "NO", "RU", "FO", "GL", "NC"} & union
    assert areas.countries(("EEA",)) - union == {"IS", "LI", "NO"}
    assert areas.countries(("DE", "South America")) >= {"DE", "BR"}


@pytest.mark.parametrize("word", ["UK", "de", "europe", "XX", "", "EUROPE", "AN", "D"])
def test_a_word_that_is_no_area_is_refused(word: str):
    with pytest.raises(ValueError, match=f"residency.stay: '{word}' is no country"):
        Residency(stay=(word,))


# Whatever the world looks like.


def seldom(odd: bool, usual: bool) -> st.SearchStrategy[bool]:
    """One in five: a world in which nothing answers tests nothing."""
    return st.sampled_from((usual, usual, usual, usual, odd))


COUNTRIES = ("DE", "FR", "US", "SG", "CH")
AREAS = st.sampled_from(("EU", "EEA", "Europe", "DE", "US", "Asia", "North America", "CH"))
NODES = st.lists(
    st.builds(
        dict,
        country=st.sampled_from((*COUNTRIES, None)),
        region=st.sampled_from(("r1", "r2", None)),
        pool=st.sampled_from(("general", "code")),
        models=st.sampled_from(((), (), ("m",), ("n",))),
        draining=seldom(True, False),
        modalities=st.sampled_from((("text",), ("text", "image+text"))),
        context_length=st.sampled_from((None, 100)),
    ),
    min_size=3,
    max_size=8,
)
LOADS = st.builds(
    Load,
    running=st.none() | st.floats(0, 50),
    memory=st.none() | st.floats(0, 1),
    qps=st.none() | st.floats(0, 20),
)
ADDRESSES = st.integers(0, 8).map("n{}:8000".format)
HINTS = st.builds(
    Hint,
    st.sampled_from(("node", "region", "pool", "tier", "avoid", "zone")),
    ADDRESSES | st.sampled_from(("r1", "r2", "code", "general", "degraded")),
    seldom(True, False),
)
REQUESTS = st.builds(
    Request,
    path=st.just("/v1/chat/completions"),
    api=st.sampled_from(("chat", None)),
    model=st.sampled_from((None, "m")),
    modality=st.sampled_from(("text", "image+text")),
    prompt_tokens=st.sampled_from((1, 1000)),
    hints=st.lists(HINTS, max_size=3).map(tuple),
    context_version=st.sampled_from((None, 1, 2)),
    subset=st.none() | st.none() | st.none() | st.lists(ADDRESSES, max_size=4).map(tuple),
    tenants=st.sampled_from(((), ("acme",), ("other",), ("other", "acme"))),
    turn=st.integers(0, 1000),
)
PLACES = st.none() | st.builds(
    Place,
    source=st.just("test"),
    country=st.none() | st.sampled_from(COUNTRIES),
    continent=st.sampled_from(("EU", "NA", None)),
    region=st.sampled_from(("r1", "r2", "r3", None)),
    latitude=st.sampled_from((None, 50.0)),
    longitude=st.sampled_from((None, 8.0)),
)
RULES = st.lists(
    st.builds(
        Residency,
        stay=st.lists(AREAS, min_size=1, max_size=2).map(tuple),
        clients=st.lists(AREAS, max_size=2).map(tuple),
        tenants=st.sampled_from(((), ("acme",))),
        unknown=st.booleans(),
    ),
    min_size=1,
    max_size=3,
).map(tuple)


def bindings(nodes: int) -> st.SearchStrategy[Binding | None]:
    return st.none() | st.integers(0, nodes).map(lambda i: bound(f"n{i}", context_version=1))


def concerns(rule: Residency, request: Request, known: Place | None, country: str | None) -> bool:
    """The rule as an operator reads it, told once more and differently."""
    if rule.tenants:
        ours = not request.tenants and rule.unknown
        if not ours and not set(rule.tenants) & set(request.tenants):
            return False
    if not rule.clients:
        return True
    theirs = areas.countries(rule.clients)
    if country is not None:
        return country in theirs
    if known is not None and known.continent is not None:
        there = {code for code in theirs if areas.continent_of(code) == known.continent}
        if not there:
            return False
        if there == set(areas.on_continent(known.continent)):
            return True
    return rule.unknown


@settings(max_examples=600, deadline=None)
@given(st.data())
def test_no_decision_and_no_fallback_ever_breaks_a_rule(data: st.DataObject):
    facts = data.draw(NODES)
    nodes = tuple(Node(address=f"n{i}:8000", **fact) for i, fact in enumerate(facts))
    loads = {each.address: data.draw(LOADS) for each in nodes}
    request, known, residency = data.draw(REQUESTS), data.draw(PLACES), data.draw(RULES)
    features = Features(place=known, binding=data.draw(bindings(len(nodes))))
    by = Rules(
        residency=residency,
        fallbacks=data.draw(st.integers(0, 8)),
        strategy=data.draw(st.sampled_from(sorted(STRATEGIES))),  # type: ignore[arg-type]
    )

    country = known.country if known is not None else None
    if known is not None and country is None:
        there = {each.country for each in nodes if each.region == known.region and known.region is not None}
        country = there.pop() if len(there) == 1 else None
    here = [rule for rule in residency if concerns(rule, request, known, country)]
    allowed = [each for each in nodes if all(each.country in areas.countries(rule.stay) for rule in here)]

    where = Fleet(nodes, loads)
    outcome = decide(request, features, where, by)
    without = Rules(fallbacks=by.fallbacks, strategy=by.strategy)
    told = explain(request, features, where, by)
    assert told.outcome == outcome
    if isinstance(outcome, Decision):
        named = {outcome.node.address, *(each.address for each in outcome.fallbacks)}
        assert named <= {each.address for each in allowed}
    elif outcome.reason == "residency":
        assert isinstance(decide(request, features, where, without), Decision)  # nothing else was in the way
    # And no more is taken away than that.
    assert not {each.address for each in allowed} & set(told.dropped.get("residency", ()))
    assert isinstance(outcome, Decision) == isinstance(
        decide(request, features, Fleet(allowed, loads), without), Decision
    )
