"""Each strategy by what it is known for."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.engine import decide, explain
from policy.rules import FirstToken, Prefix
from policy.strategies import STRATEGIES
from policy.types import Decision, Features, Fleet
from tests.policy.world import LONDON, NEW_YORK, PARIS, chat, fleet, idle, node, of, picked, place, rules


def cached(*tokens: float) -> Features:
    return Features(cached=np.array(tokens))


# Peak EWMA.


def test_peak_ewma_weighs_latency_by_what_is_ahead():
    by = rules("peak_ewma")
    assert picked(of(slow=idle(peak_ms=300.0), fast=idle(peak_ms=100.0, running=1.0)), by=by) == "fast"
    assert picked(of(slow=idle(peak_ms=300.0), fast=idle(peak_ms=100.0, running=4.0)), by=by) == "slow"


def test_peak_ewma_takes_an_unmeasured_node_for_an_average_one():
    by = rules("peak_ewma")
    assert picked(of(new=idle(), slow=idle(peak_ms=300.0), fast=idle(peak_ms=100.0)), by=by) == "fast"
    assert picked(of(new=idle(), slow=idle(peak_ms=300.0), fast=idle(peak_ms=100.0, running=9.0)), by=by) == "new"


# Prequal.


def test_prequal_takes_the_quickest_cold_node_and_no_hot_one():
    where = of(
        a=idle(latency_ms=50.0, running=9.0), b=idle(latency_ms=80.0, running=2.0), c=idle(latency_ms=90.0, running=1.0)
    )
    assert picked(where, by=rules("prequal")) == "b"


def test_prequal_never_sends_where_most_requests_are_though_it_is_quickest():
    loads = {f"n{i}": idle(latency_ms=100.0 + i, running=float(i % 3)) for i in range(9)}
    loads["n0"] = idle(latency_ms=1.0, running=50.0)
    assert picked(of(**loads), by=rules("prequal")) != "n0"


# Prefix match.


def test_the_node_with_most_of_the_prompt_is_taken():
    where = of(a=idle(), b=idle(), c=idle())
    assert picked(where, chat(prompt_tokens=1000), cached(0, 800, 300), rules("prefix_match")) == "b"


def test_a_match_under_the_floor_counts_as_none():
    where = of(a=idle(), b=idle(running=3.0))
    assert picked(where, chat(prompt_tokens=1000), cached(0, 99), rules("prefix_match")) == "a"
    by = rules("prefix_match", prefix=Prefix(floor=0.05))
    assert picked(where, chat(prompt_tokens=1000), cached(0, 99), by) == "b"


def test_a_node_much_busier_than_the_others_is_not_taken_for_its_cache():
    where = of(a=idle(running=1.0), b=idle(running=1.0), c=idle(running=140.0))
    assert picked(where, chat(prompt_tokens=1000), cached(0, 100, 1000), rules("prefix_match")) == "b"


# Time to first token.

FIRST = "time_to_first_token"


def test_first_token_adds_up_seconds():
    where = of(a=idle(queued_tokens=8000.0), b=idle(queued_tokens=0.0))
    told = explain(chat(prompt_tokens=4000), cached(4000, 0), where, rules(FIRST))
    # Both are idle otherwise: no request at them costs anything.
    a, b = sorted(told.candidates, key=lambda candidate: candidate.address)
    assert a.points == pytest.approx(-1.0)  # a queue of 8,000 tokens at 8,000 a second, and nothing to read
    assert b.points == pytest.approx(-0.5)


def test_a_cached_prompt_is_worth_a_queue_no_longer_than_it_saves():
    for queued, expected in ((3000.0, "a"), (5000.0, "b")):
        where = of(a=idle(queued_tokens=queued), b=idle(queued_tokens=0.0))
        assert picked(where, chat(prompt_tokens=4000), cached(4000, 0), rules(FIRST)) == expected


def test_a_far_node_is_worth_its_way_when_the_near_one_has_a_queue():
    """London to New York and back is about 56 ms, 445 tokens of queue."""
    for queued, expected in ((300.0, "near"), (900.0, "far")):
        where = fleet(
            node("near", LONDON), node("far", NEW_YORK), near=idle(queued_tokens=queued), far=idle(queued_tokens=0.0)
        )
        assert picked(where, chat(prompt_tokens=10), Features(place=place(PARIS)), rules(FIRST)) == expected


def test_another_continent_only_when_this_one_has_no_headroom():
    def where(near_memory: float) -> Fleet:
        return fleet(
            node("near", LONDON, continent="EU"),
            node("far", NEW_YORK, continent="NA"),
            near=idle(queued_tokens=50_000.0, memory=near_memory),
            far=idle(queued_tokens=0.0),
        )

    told = Features(place=place(PARIS, continent="EU"))
    assert picked(where(0.5), chat(), told, rules(FIRST)) == "near"
    assert picked(where(0.95), chat(), told, rules(FIRST)) == "far"


def test_a_full_cache_costs_and_a_crowded_node_comes_last():
    assert picked(of(a=idle(memory=0.9), b=idle(memory=0.5)), chat(prompt_tokens=100), by=rules(FIRST)) == "b"
    where = of(a=idle(running=130.0), b=idle(running=2.0), c=idle(running=2.0))
    assert picked(where, chat(prompt_tokens=1000), cached(1000, 0, 10), rules(FIRST)) == "c"


def test_without_any_load_known_router_balancing_decides():
    where = fleet(node("a"), node("b"))
    told = explain(chat(), Features(), where, rules(FIRST))
    assert "request rate" in told.candidates[0].criteria


def test_a_node_slower_than_the_fleets_middle_p99_is_late_and_one_slow_node_does_not_move_the_middle():
    loads = {f"n{i}": idle(queued_tokens=400.0, peak_ms=170.0, p99_ms=180.0) for i in range(4)}
    where = of(slow=idle(queued_tokens=0.0, peak_ms=2000.0, p99_ms=2000.0), **loads)
    assert {picked(where, chat(turn=turn), by=rules(FIRST)) for turn in range(20)} == set(loads)


@pytest.mark.parametrize("term", ["place", "queue", "cache", "pressure", "late", "guard"])
def test_every_term_can_be_left_out(term):
    where = fleet(
        node("a", LONDON),
        node("b", NEW_YORK),
        a=idle(queued_tokens=9000.0, memory=0.9, running=400.0, peak_ms=900.0),
        b=idle(p99_ms=100.0),
    )
    facts = Features(place=place(PARIS), cached=np.array([100.0, 0.0]))
    whole = explain(chat(prompt_tokens=1000), facts, where, rules(FIRST))
    less = explain(chat(prompt_tokens=1000), facts, where, rules(FIRST, first_token=FirstToken(**{term: False})))
    assert whole.candidates != less.candidates


def test_near_equals_share_the_work():
    loads = {f"n{i}": idle(queued_tokens=float(i)) for i in range(4)}
    taken = {picked(of(**loads), chat(prompt_tokens=100, turn=turn), by=rules(FIRST)) for turn in range(40)}
    assert taken == set(loads)


# Router-Balancing, complete.


def test_a_node_with_a_smaller_share_and_one_with_a_lower_p99_are_preferred():
    assert picked(of(a=idle(running=9.0), b=idle(running=1.0)), by=rules()) == "b"
    assert picked(of(a=idle(p99_ms=4000.0), b=idle(p99_ms=200.0)), by=rules()) == "b"


@pytest.mark.parametrize("strategy", ["router_balancing", FIRST])
def test_a_node_that_answers_with_errors_is_left_alone_though_it_is_idle(strategy):
    where = of(broken=idle(error_rate=0.9, running=0.0), well=idle(running=6.0, queued_tokens=2000.0))
    assert picked(where, chat(prompt_tokens=100), by=rules(strategy)) == "well"


def test_a_new_node_in_its_slow_start_gets_less():
    where = of(new=idle(warm=0.1, queued_tokens=0.0), old=idle(queued_tokens=3000.0))
    assert picked(where, chat(prompt_tokens=1000), by=rules(FIRST)) == "old"


# All of them.

NUMBER = st.one_of(st.none(), st.floats(0.0, 1e6))
LOAD = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("running", "waiting", "queued_tokens", "latency_ms", "p99_ms", "peak_ms"), NUMBER)
)


@pytest.mark.parametrize("strategy", STRATEGIES)
@given(
    loads=st.lists(LOAD, min_size=1, max_size=6), tokens=st.integers(0, 10**6), turn=st.integers(0, 9), data=st.data()
)
def test_whatever_is_known_a_node_is_chosen_and_its_points_add_up(strategy, loads, tokens, turn, data):
    where = of(**{f"n{i}": idle(**load) for i, load in enumerate(loads)})
    known = data.draw(st.lists(st.floats(0.0, 1e6), min_size=len(loads), max_size=len(loads)))
    request = chat(prompt_tokens=tokens, turn=turn)
    outcome = decide(request, cached(*known), where, rules(strategy))
    assert isinstance(outcome, Decision)
    for candidate in explain(request, cached(*known), where, rules(strategy)).candidates:
        assert candidate.points == pytest.approx(sum(candidate.criteria.values()), rel=1e-6, abs=1e-6)
