"""The decision, a claim at a time."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.engine import decide, explain
from policy.strategies import STRATEGIES
from policy.strategies.router_balancing import pressed
from policy.types import Decision, Features, Fleet, Hint, Load, Node, Shed
from tests.policy.world import (
    LONDON,
    NEW_YORK,
    PARIS,
    POOLS,
    SINGAPORE,
    bound,
    chat,
    decided,
    fleet,
    idle,
    intent,
    node,
    of,
    picked,
    place,
    reasons,
    rules,
)

# Who may answer at all.


def test_without_nodes_the_request_is_shed():
    outcome = decided(fleet())
    assert outcome == Shed(reason="no-nodes", detail="No node is available.")


def test_a_draining_node_takes_no_new_work():
    assert picked(fleet(node("going", draining=True), node("stays"))) == "stays"
    outcome = decided(fleet(node("going", draining=True)))
    assert isinstance(outcome, Shed)
    assert (outcome.reason, outcome.dropped) == ("no-nodes", {"draining": 1})


def test_a_node_over_the_high_watermark_takes_no_new_work():
    assert picked(of(full=idle(memory=0.95), busy=idle(qps=9.0, memory=0.9))) == "busy"


def test_where_all_are_over_the_watermark_one_answers_all_the_same_and_says_so():
    outcome = decided(of(full=idle(memory=0.95), fuller=idle(memory=0.99)))
    assert isinstance(outcome, Decision)
    assert (outcome.node.address, outcome.tier) == ("full:8000", "last-resort")
    assert "no headroom left on it" in reasons(of(full=idle(memory=0.95), fuller=idle(memory=0.99)))


def test_a_named_model_is_honoured():
    where = fleet(node("a", models=("small",)), node("b", models=("large", "alias")))
    for turn in range(4):
        assert picked(where, chat(model="alias", turn=turn)) == "b"


def test_an_unknown_model_is_refused_with_the_list_of_what_exists():
    outcome = decided(fleet(node("a", models=("small",)), node("b", models=("large",))), chat(model="nope"))
    assert isinstance(outcome, Shed)
    assert outcome.reason == "unknown-model"
    assert outcome.detail == "The model `nope` does not exist. Valid aliases: large, small."


def test_where_nothing_is_listed_the_refusal_says_so():
    outcome = decided(fleet(node("a")), chat(model="auto", auto=True))
    assert isinstance(outcome, Shed)
    assert outcome.detail == "The model `auto` does not exist. No names of models are listed here."


def test_auto_in_a_body_we_cannot_change_goes_where_the_word_is_served_or_anywhere():
    small, knows = node("a", models=("small",)), node("b", models=("large", "auto"))
    for turn in range(4):
        assert picked(fleet(small, knows), chat(model="auto", turn=turn)) == "b"
        assert picked(fleet(small), chat(model="auto", turn=turn)) == "a"
    assert isinstance(decided(fleet(small), chat(model="auto"), by=rules(auto_model="any")), Shed)


def test_a_node_that_lists_no_models_serves_any():
    assert picked(fleet(node("a", models=("small",)), node("b")), chat(model="nope")) == "b"


def test_the_names_clients_invent_are_not_remembered():
    where = fleet(node("a", models=("small",)))
    for i in range(50):
        where.serving(f"invented-{i}")
    where.serving("small")
    assert len(where._by_model) == 1


def test_auto_becomes_the_model_of_the_intents_pool():
    where = fleet(node("a", pool="code", models=("coder",)), node("b", pool="general", models=("talker",)))
    for name, expected in (
        ("coding", ("a:8000", "coder")),
        ("writing", ("b:8000", "talker")),
        (None, ("b:8000", "talker")),
    ):
        outcome = decided(where, chat(model="auto", auto=True), Features(intent=intent(name)), rules(pools=POOLS))
        assert isinstance(outcome, Decision)
        assert (outcome.node.address, outcome.model) == expected


def test_auto_stays_where_a_node_serves_the_word_itself():
    where = fleet(node("a", pool="code", models=("coder", "auto")))
    outcome = decided(where, chat(model="auto", auto=True), Features(intent=intent("coding")), rules(pools=POOLS))
    assert isinstance(outcome, Decision)
    assert outcome.model is None


def test_a_body_is_left_alone_unless_the_client_said_auto():
    where = fleet(node("a", pool="code", models=("coder",)))
    outcome = decided(where, chat(model="coder"), Features(intent=intent("coding")), rules(pools=POOLS))
    assert isinstance(outcome, Decision)
    assert outcome.model is None


def test_pictures_go_to_nodes_that_read_them_and_where_none_does_the_pod_says_so_itself():
    reads = node("eyes", modalities=("text", "image+text"))
    assert picked(fleet(node("blind"), reads), chat(modality="image+text")) == "eyes"
    assert picked(fleet(node("blind")), chat(modality="image+text")) == "blind"


def test_a_prompt_too_long_for_a_node_goes_to_a_longer_one_and_else_to_any():
    where = fleet(node("short", context_length=1000), node("long", context_length=9000))
    assert picked(where, chat(prompt_tokens=900, max_tokens=200)) == "long"
    assert picked(where, chat(prompt_tokens=90_000)) in ("short", "long")


def test_a_gateways_subset_restricts_by_address_or_by_ip():
    where = fleet(node("10.0.0.1"), node("10.0.0.2"))
    assert picked(where, chat(subset=("10.0.0.2:8000",))) == "10.0.0.2"
    assert picked(where, chat(subset=("10.0.0.2",))) == "10.0.0.2"
    for subset in ((), ("10.0.0.3:8000",)):
        outcome = decided(where, chat(subset=subset))
        assert isinstance(outcome, Shed)
        assert outcome.reason == "subset"


def test_a_subset_knows_ports_and_brackets_and_passes_over_whom_nobody_knows():
    where = fleet(Node(address="[fd00::1]:8000"), Node(address="[fd00::1]:8001"), Node(address="10.0.0.1:8000"))

    def all_of(*subset: str) -> set[str]:
        told = explain(chat(subset=subset), Features(), where, rules("round_robin"))
        return {candidate.address for candidate in told.candidates}

    assert all_of("[fd00::1]") == {"[fd00::1]:8000", "[fd00::1]:8001"}
    assert all_of("[fd00::1]:8001", "10.9.9.9:8000", "x") == {"[fd00::1]:8001"}
    assert all_of("10.0.0.1:9999", "10.0.0.1:8000") == {"10.0.0.1:8000"}
    assert all_of("10.0.0.1:9999") == all_of("10.0.0") == all_of("[fd00::1") == set()


# Meaning.


def two_pools(**loads: Load) -> Fleet:
    return fleet(node("a", pool="code"), node("b", pool="general"), **loads)


def test_the_intents_pool_comes_first():
    assert picked(two_pools(), features=Features(intent=intent("coding")), by=rules(pools=POOLS)) == "a"
    assert picked(two_pools(), features=Features(intent=intent("writing")), by=rules(pools=POOLS)) == "b"


def test_an_unsure_intent_widens_to_the_general_pool():
    assert picked(two_pools(), features=Features(intent=intent(None)), by=rules(pools=POOLS)) == "b"


def test_the_general_pool_helps_out_when_the_intents_has_no_headroom():
    outcome = decided(
        two_pools(a=idle(qps=10.0), b=idle()), features=Features(intent=intent("coding")), by=rules(pools=POOLS)
    )
    assert isinstance(outcome, Decision)
    assert (outcome.node.address, outcome.tier) == ("b:8000", "degraded")


def test_where_nobody_has_headroom_the_intents_pool_still_comes_first():
    where = two_pools(a=idle(qps=10.0), b=idle(qps=11.0))
    outcome = decided(where, features=Features(intent=intent("coding")), by=rules(pools=POOLS))
    assert isinstance(outcome, Decision)
    assert (outcome.node.address, outcome.tier) == ("a:8000", "last-resort")


# Place.


def three_regions(**loads: Load) -> Fleet:
    return fleet(
        node("eu", LONDON, region="eu", continent="EU"),
        node("us", NEW_YORK, region="us", continent="NA"),
        node("ap", SINGAPORE, region="ap", continent="AS"),
        **loads,
    )


@pytest.mark.parametrize(("at", "expected"), [(PARIS, "eu"), ((37.8, -122.4), "us"), ((-33.9, 151.2), "ap")])
def test_the_nearest_node_answers(at, expected):
    for turn in range(5):
        assert picked(three_regions(), chat(turn=turn), Features(place=place(at))) == expected


def test_a_busy_near_node_still_beats_an_idle_far_one_until_it_has_no_headroom():
    near = Features(place=place(PARIS))
    assert picked(three_regions(eu=idle(qps=9.9, memory=0.9), us=idle(), ap=idle()), features=near) == "eu"
    assert picked(three_regions(eu=idle(qps=10.0), us=idle(), ap=idle()), features=near) == "us"


def test_nodes_inside_the_soft_radius_are_equally_near_and_load_decides():
    where = fleet(node("city", (51.5, -0.1)), node("edge", (51.7, 0.3)), city=idle(qps=5.0), edge=idle(qps=1.0))
    assert picked(where, features=Features(place=place(LONDON))) == "edge"


def test_another_continent_only_when_there_is_no_other_way():
    where = fleet(node("far-home", (60.0, 100.0), continent="AS"), node("near-abroad", (41.0, 28.9), continent="EU"))
    assert picked(where, features=Features(place=place((39.9, 32.9), continent="AS"))) == "far-home"


@given(
    st.none() | st.tuples(st.floats(-90, 90), st.floats(-180, 180)),
    st.sampled_from((None, "EU", "AS", "AF", "AN")),
    st.sampled_from((None, "eu", "mars")),
)
def test_however_wrong_a_place_is_it_costs_nearness_and_never_the_only_node_that_can_answer(at, continent, region):
    """A cloud's or CDN's address may be anywhere on the map."""
    features = Features(place=place(at, continent=continent, region=region))
    only_us = three_regions(eu=idle(memory=0.95), ap=idle(qps=10.0), us=idle(qps=9.9, memory=0.9))
    assert picked(only_us, features=features) == "us"
    assert picked(fleet(node("far", SINGAPORE, continent="AS")), features=features) == "far"


def test_a_sidecars_region_name_is_a_place():
    for region in ("eu", "us", "ap"):
        assert picked(three_regions(), features=Features(place=place(region=region))) == region


def test_an_unknown_place_leaves_load_alone_to_decide():
    assert picked(three_regions(eu=idle(qps=5.0), us=idle(qps=1.0), ap=idle(qps=5.0))) == "us"
    unknown_region = Features(place=place(region="mars"))
    assert picked(three_regions(eu=idle(qps=5.0), us=idle(qps=1.0), ap=idle(qps=5.0)), features=unknown_region) == "us"


def test_a_node_of_unknown_place_neither_wins_nor_is_lost():
    where = fleet(node("near", LONDON), node("nowhere"), node("far", NEW_YORK))
    order = [c.address for c in explain(chat(), Features(place=place(PARIS)), where, rules()).candidates]
    assert order[0] == "near:8000"
    assert "nowhere:8000" in order


# Load.


def test_the_formulas_own_example():
    """Design formula 2: a node at 31 % of its rate and 92 % of its memory scores 0.446."""
    where = of(a=Load(qps=3.1, memory=0.92), b=Load(qps=0.0, memory=0.0))
    points = {c.address: c.points for c in explain(chat(), Features(), where, rules()).candidates}
    assert points["a:8000"] == pytest.approx(0.446)
    assert points["b:8000"] == 1.0


def test_a_fleet_short_of_memory_weighs_memory_more():
    where = of(a=Load(qps=1.0, memory=0.91), b=Load(qps=5.0, memory=0.80))
    assert picked(where) == "a"
    pressed_fleet = of(a=Load(qps=1.0, memory=0.91), b=Load(qps=2.0, memory=0.80), c=Load(qps=0.0, memory=0.9))
    assert picked(pressed_fleet) == "b"


def test_two_nodes_that_average_exactly_the_threshold_are_not_pressed():
    assert not pressed(np.array([0.92, 0.78]), 0.85)
    assert pressed(np.array([0.92, 0.79]), 0.85)
    assert not pressed(np.array([math.nan, math.nan]), 0.85)


def test_unknown_load_neither_wins_nor_loses():
    where = of(known_idle=Load(qps=0.0, memory=0.0), unknown=Load(), known_busy=Load(qps=9.0, memory=0.9))
    order = [c.address.removesuffix(":8000") for c in explain(chat(), Features(), where, rules()).candidates]
    assert order == ["known_idle", "unknown", "known_busy"]


def test_round_robin_takes_each_in_turn():
    where = of(a=idle(), b=idle(), c=idle())
    assert [picked(where, chat(turn=t), by=rules("round_robin")) for t in range(6)] == ["a", "b", "c", "a", "b", "c"]


def test_least_request_counts_running_waiting_and_what_we_sent_since():
    where = of(a=Load(running=2.0, waiting=0.0), b=Load(running=1.0, waiting=2.0), c=Load(running=1.0, sent=0.5))
    assert picked(where, by=rules("least_request")) == "c"


def test_power_of_two_takes_the_less_loaded_of_two_and_draws_all_pairs():
    loads = {name: Load(running=float(i)) for i, name in enumerate("abcdef")}
    seen = [picked(of(**loads), chat(turn=t), by=rules("power_of_two")) for t in range(600)]
    share = {name: seen.count(name) / 600 for name in "abcdef"}
    # Of 15 pairs the least loaded is in 5, the next decides 4 more, … the most loaded none.
    for rank, name in enumerate("abcdef"):
        assert share[name] == pytest.approx((5 - rank) / 15, abs=0.06)


def test_equals_share_the_work():
    where = of(a=idle(), b=idle(), c=idle(), d=idle())
    seen = [picked(where, chat(turn=t)) for t in range(400)]
    assert min(seen.count(name) for name in "abcd") > 60


# Sessions.


def test_a_session_stays_on_its_node_though_another_is_idler_or_nearer():
    where = three_regions(eu=idle(), us=idle(qps=9.0), ap=idle())
    outcome = decided(where, features=Features(place=place(PARIS), binding=bound("us")))
    assert isinstance(outcome, Decision)
    assert (outcome.node.address, outcome.stuck) == ("us:8000", True)
    assert "session stays" in reasons(where, features=Features(place=place(PARIS), binding=bound("us")))


@pytest.mark.parametrize(
    ("where", "binding", "why"),
    [
        (of(a=idle()), bound("b"), "its node is gone"),
        (of(a=idle(), b=idle(qps=2.0)), bound("b", identity="an earlier pod"), "its node is gone"),
        (of(a=idle(), b=idle(memory=0.95)), bound("b"), "its node is over the watermark"),
        (fleet(node("a"), node("b", draining=True)), bound("b"), "its node is not eligible for this request"),
    ],
)
def test_a_pinned_node_that_cannot_go_on_releases_the_session_and_says_so(where, binding, why):
    outcome = decided(where, features=Features(binding=binding))
    assert isinstance(outcome, Decision)
    assert (outcome.node.address, outcome.stuck) == ("a:8000", False)
    assert f"session released: {why}" in reasons(where, features=Features(binding=binding))


def test_a_short_follow_up_keeps_its_conversations_intent():
    features = Features(intent=intent("writing"), binding=bound("a", intent="coding"))
    follow_up = chat(follow_up=True, asked=12)
    assert picked(two_pools(), follow_up, features, rules(pools=POOLS)) == "a"


def test_a_long_turn_on_something_else_moves_the_conversation_to_its_pool():
    features = Features(intent=intent("writing"), binding=bound("a", intent="coding"))
    outcome = decided(two_pools(), chat(follow_up=True, asked=500), features, rules(pools=POOLS))
    assert isinstance(outcome, Decision)
    assert outcome.node.address == "b:8000"
    assert "session released: the conversation turned to writing" in reasons(
        two_pools(), chat(follow_up=True, asked=500), features, rules(pools=POOLS)
    )


def test_an_equal_context_version_is_a_retry_and_goes_where_its_first_try_went():
    features = Features(intent=intent("writing"), binding=bound("a", intent="coding", context_version=7))
    outcome = decided(two_pools(), chat(asked=500, context_version=7), features, rules(pools=POOLS))
    assert isinstance(outcome, Decision)
    assert outcome.node.address == "a:8000"
    assert "session stays (retry)" in reasons(
        two_pools(), chat(asked=500, context_version=7), features, rules(pools=POOLS)
    )


def test_an_older_context_version_is_a_conflict_flagged_or_refused():
    features = Features(binding=bound("a", context_version=7))
    outcome = decided(two_pools(), chat(context_version=6), features)
    assert isinstance(outcome, Decision)
    assert outcome.conflict
    strict = decided(two_pools(), chat(context_version=6), features, rules(strict_context=True))
    assert isinstance(strict, Shed)
    assert strict.reason == "context-conflict"


# Hints.


@pytest.mark.parametrize(
    ("key", "value"),
    [("zone", "z2"), ("region", "us"), ("pool", "code"), ("node", "b:8000"), ("avoid", "a:8000"), ("avoid", "eu")],
)
def test_a_hint_is_a_preference(key, value):
    where = fleet(
        node("a", region="eu", zone="z1"), node("b", region="us", zone="z2", pool="code"), a=idle(), b=idle(qps=8.0)
    )
    assert picked(where) == "a"
    assert picked(where, chat(hints=(Hint(key, value),))) == "b"


def test_a_hint_nobody_meets_or_nobody_with_headroom_is_passed_over():
    where = fleet(node("a"), node("b", region="us"), a=idle(), b=idle(qps=10.0))
    assert picked(where, chat(hints=(Hint("region", "us"),))) == "a"
    assert picked(where, chat(hints=(Hint("region", "mars"), Hint("node", "nowhere:1")))) == "a"


def test_a_required_hint_is_a_condition():
    where = fleet(node("a"), node("b", region="us"), a=idle(), b=idle(qps=10.0))
    assert picked(where, chat(hints=(Hint("region", "us", required=True),))) == "b"
    outcome = decided(where, chat(hints=(Hint("region", "mars", required=True),)))
    assert isinstance(outcome, Shed)
    assert (outcome.reason, outcome.detail) == ("hint", "No node meets the required hint region=mars.")


def test_a_hint_outweighs_the_session():
    where = fleet(node("a"), node("b"), a=idle(), b=idle())
    outcome = decided(where, chat(hints=(Hint("avoid", "a:8000"),)), Features(binding=bound("a")))
    assert isinstance(outcome, Decision)
    assert outcome.node.address == "b:8000"
    assert "session released: hint avoid=a:8000" in reasons(
        where, chat(hints=(Hint("avoid", "a:8000"),)), Features(binding=bound("a"))
    )


def test_the_degraded_tier_may_be_asked_for():
    asked = chat(hints=(Hint("tier", "degraded"),))
    assert picked(two_pools(), asked, Features(intent=intent("coding")), rules(pools=POOLS)) == "b"


# Tier, confidence, fallbacks.


def test_a_source_that_gave_no_answer_degrades_the_tier_and_the_confidence():
    full = decided(of(a=idle()), features=Features(intent=intent("coding", 0.95)))
    less = decided(of(a=idle()), features=Features(missing=("intents",)))
    assert isinstance(full, Decision)
    assert isinstance(less, Decision)
    assert (full.tier, full.confidence) == ("normal", 0.95)
    assert (less.tier, less.confidence) == ("degraded", 0.35)
    assert "no answer in time: intents" in reasons(of(a=idle()), features=Features(missing=("intents",)))


def test_confidence_follows_its_formula_and_its_floors():
    def confidence(load: Load, sure: float) -> float:
        outcome = decided(of(a=load), features=Features(intent=intent("coding", sure)))
        assert isinstance(outcome, Decision)
        return outcome.confidence

    assert confidence(idle(latency_ms=200.0, error_rate=0.01), 1.0) == pytest.approx(1 - 0.1 - 0.02)
    assert confidence(idle(latency_ms=200.0, error_rate=0.01), 0.9) == pytest.approx(0.88 * 0.9)
    assert confidence(idle(latency_ms=1900.0, error_rate=0.5), 1.0) == 0.6


def test_fallbacks_are_the_next_best_in_order_and_never_the_node_itself():
    where = of(a=Load(qps=1.0), b=Load(qps=2.0), c=Load(qps=3.0), d=Load(qps=4.0))
    outcome = decided(where, by=rules(fallbacks=2))
    assert isinstance(outcome, Decision)
    assert [n.address for n in (outcome.node, *outcome.fallbacks)] == ["a:8000", "b:8000", "c:8000"]
    stuck = decided(where, features=Features(binding=bound("d")), by=rules(fallbacks=2))
    assert isinstance(stuck, Decision)
    assert [n.address for n in (stuck.node, *stuck.fallbacks)] == ["d:8000", "a:8000", "b:8000"]
    alone = decided(of(a=idle()), by=rules(fallbacks=2))
    assert isinstance(alone, Decision)
    assert alone.fallbacks == ()


def test_by_default_one_node_is_named():
    outcome = decided(of(a=idle(), b=idle(), c=idle()))
    assert isinstance(outcome, Decision)
    assert outcome.fallbacks == ()


def test_explain_takes_the_very_decision():
    where = three_regions(eu=idle(memory=0.95), us=idle(), ap=idle())
    features = Features(place=place(PARIS), intent=intent("coding"))
    told = explain(chat(), features, where, rules())
    assert told.outcome == decide(chat(), features, where, rules())
    assert told.dropped == {"watermark": ("eu:8000",)}
    assert told.candidates[0].address == "us:8000"
    for candidate in told.candidates:
        assert candidate.points == pytest.approx(sum(candidate.criteria.values()))


def test_a_fleet_lists_every_address_once():
    with pytest.raises(ValueError, match="a:8000 is listed twice"):
        fleet(node("a"), node("a"))


# Properties.

_share = st.none() | st.floats(0.0, 1.0)
_loads = st.builds(
    Load,
    running=st.none() | st.floats(0, 100),
    waiting=st.none() | st.floats(0, 100),
    memory=_share,
    qps=st.none() | st.floats(0, 20),
    latency_ms=st.none() | st.floats(0, 1e5),
    error_rate=_share,
)
_places = st.none() | st.builds(
    lambda lat, lon, continent: place((lat, lon), continent=continent),
    st.floats(-90, 90), st.floats(-180, 180), st.sampled_from(["EU", "NA", None]),
)  # fmt: skip


@given(
    loads=st.lists(_loads, min_size=1, max_size=12),
    where=_places,
    strategy=st.sampled_from(sorted(STRATEGIES)),
    turn=st.integers(0, 2**40),
    meant=st.sampled_from(["coding", "writing", None]),
    coordinates=st.booleans(),
)
def test_some_node_always_answers_the_same_way_and_sanely(loads, where, strategy, turn, meant, coordinates):
    nodes = [
        Node(
            address=f"n{i}:1",
            pool=("code", "general", "other")[i % 3],
            latitude=float(i * 7 % 90) if coordinates else None,
            longitude=float(i * 31 % 180) if coordinates else None,
            continent=("EU", "NA", None)[i % 3],
        )
        for i in range(len(loads))
    ]
    world = Fleet(nodes, {f"n{i}:1": load for i, load in enumerate(loads)})
    features = Features(place=where, intent=intent(meant))
    by = rules(strategy, pools=POOLS, fallbacks=2)
    first = decide(chat(turn=turn), features, world, by)
    assert isinstance(first, Decision)
    assert first == decide(chat(turn=turn), features, world, by)
    assert 0.3 <= first.confidence <= 1.0
    addresses = [n.address for n in (first.node, *first.fallbacks)]
    assert len(set(addresses)) == len(addresses)
    if (~world.full).any():
        assert not world.full[world.by_address[first.node.address]]
