"""Claims about the fleet as it is now; the clock is an argument, so minutes pass in no time."""

import math
import time
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.engine import decide, explain
from policy.live import COLDEST, DEAD_S, SLOW_START_S, STALE_S, STEP_S, WINDOW_S, LiveFleet
from policy.rules import Rules, Watermarks
from policy.types import Decision, Features, Load, Node, Request

A, B, C = "10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000"
BUSY = Load(running=3.0, waiting=2.0, memory=0.4)


def live(*addresses: str, low: float = 0.80, high: float = 0.92) -> LiveFleet:
    return LiveFleet([Node(address=address) for address in addresses or (A, B)], Watermarks(low=low, high=high))


def row(fleet: LiveFleet, address: str, *columns: str) -> tuple[Any, ...]:
    where = fleet.fleet.by_address[address]
    return tuple(getattr(fleet.fleet, column)[where].item() for column in columns)


def figures(fleet: LiveFleet, address: str) -> tuple[Any, ...]:
    return row(fleet, address, "running", "waiting", "memory", "sent")


def full(fleet: LiveFleet, memory: float | None) -> bool:
    fleet.observed(A, Load(memory=memory), 0.0)
    (answer,) = row(fleet, A, "full")
    return bool(answer)


def test_a_new_fleet_knows_nothing_rather_than_idleness():
    assert np.isnan(row(live(), A, "running", "waiting", "memory", "qps")).all()
    assert row(live(), A, "full", "sent") == (False, 0.0)


def test_what_was_sent_shows_in_the_very_next_decision():
    fleet = live()
    before = fleet.fleet
    fleet.sent(A, 100.0)
    assert fleet.fleet is before
    assert row(fleet, A, "sent", "qps") == (1.0, 1.0 / STEP_S)


def test_figures_replace_what_was_sent_before_they_were_read():
    fleet = live()
    fleet.sent(A, 100.0)
    fleet.observed(A, BUSY, 100.5)
    assert figures(fleet, A) == (3.0, 2.0, 0.4, 0.0)


def test_what_was_sent_while_the_page_was_under_way_is_not_forgotten():
    fleet = live()
    fleet.sent(A, 100.0)
    counted = fleet.unread(A)
    fleet.sent(A, 100.1)
    fleet.sent(A, 100.2)
    fleet.observed(A, BUSY, 100.5, counted=counted)
    assert row(fleet, A, "sent") == (2.0,)


def test_a_figure_missing_from_a_page_is_unknown_not_zero():
    fleet = live()
    fleet.observed(A, BUSY, 1.0)
    fleet.observed(A, Load(running=1.0), 2.0)
    running, waiting, memory, _ = figures(fleet, A)
    assert running == 1.0
    assert math.isnan(waiting)
    assert math.isnan(memory)


def test_old_figures_stand_until_they_are_stale_and_are_then_unknown_neither_idle_nor_full():
    fleet = live(A)
    fleet.observed(A, Load(running=3.0, waiting=2.0, memory=0.99), 100.0)
    fleet.tick(100.0 + STALE_S - 0.1)
    assert row(fleet, A, "running", "full") == (3.0, True)
    fleet.tick(100.0 + STALE_S)
    assert np.isnan(row(fleet, A, "running", "waiting", "memory")).all()
    assert row(fleet, A, "full") == (False,)


def test_one_pod_that_cannot_be_read_leaves_the_others_as_they_are():
    fleet = live()
    fleet.observed(A, BUSY, 0.0)
    fleet.observed(B, BUSY, STALE_S)
    fleet.sent(B, STALE_S)
    fleet.tick(STALE_S)
    assert figures(fleet, B) == (3.0, 2.0, 0.4, 1.0)
    assert np.isnan(row(fleet, A, "running"))


@pytest.mark.parametrize("readable", [(A, B), ()])
def test_pods_that_cannot_be_read_get_their_share_for_as_long_as_it_takes(readable: tuple[str, ...]):
    fleet, got = live(A, B, C), Counter[str]()
    for turn in range(3000):
        now = turn / 10
        if turn % 10 == 0:
            for address in readable:
                fleet.observed(address, BUSY, now)
            fleet.tick(now)
        chosen = decide(Request(path="/", turn=turn), Features(), fleet.fleet, Rules(strategy="least_request"))
        assert isinstance(chosen, Decision)
        got[chosen.node.address] += 1
        fleet.sent(chosen.node.address, now)
    assert min(got.values()) > 0.8 * max(got.values()), got


def test_a_node_is_full_above_high_until_it_is_under_low():
    fleet = live(A, low=0.80, high=0.92)
    readings = (0.90, 0.92, 0.93, 0.85, 0.80, 0.79, 0.85, 0.99, None)
    assert [full(fleet, memory) for memory in readings] == [
        False, False, True, True, True, False, False, True, False,
    ]  # fmt: skip


def test_requests_a_second_are_those_of_the_last_minute():
    fleet = live(A)
    for second in range(600):
        for _ in range(3):
            fleet.sent(A, float(second))
    assert row(fleet, A, "qps")[0] == pytest.approx(3.0, rel=0.05)


def test_rates_fall_to_nothing_a_minute_after_the_last_request():
    fleet = live(A)
    for i in range(120):
        fleet.sent(A, i * 0.5)
    fleet.tick(60.0 + WINDOW_S / 2)
    assert 0.5 < row(fleet, A, "qps")[0] < 1.5
    fleet.tick(60.0 + WINDOW_S + STEP_S)
    assert row(fleet, A, "qps") == (0.0,)


def test_a_clock_that_starts_anywhere_and_jumps_an_hour_is_no_trouble():
    fleet = live(A)
    fleet.sent(A, 1e9)
    fleet.tick(1e9 + 3600)
    assert row(fleet, A, "qps") == (0.0,)
    fleet.sent(A, 1e9 + 3600)
    assert row(fleet, A, "qps")[0] == pytest.approx(1 / WINDOW_S, rel=0.1)


@given(st.lists(st.floats(0.0, 30.0), max_size=60), st.floats(0.0, 1e6))
def test_the_window_counts_what_a_list_of_times_would(gaps: list[float], start: float):
    fleet, times = live(A), []
    now = start
    for gap in gaps:
        now += gap
        times.append(now)
        fleet.sent(A, now)
    if not times:
        return
    oldest = (int(now / STEP_S) - int(WINDOW_S / STEP_S)) * STEP_S
    inside = sum(int(at / STEP_S) * STEP_S >= oldest for at in times)
    span = min(WINDOW_S + now % STEP_S, max(STEP_S, now - start - gaps[0]))
    assert row(fleet, A, "qps")[0] == pytest.approx(inside / span)


def test_another_topology_keeps_the_load_of_the_pods_that_stay():
    fleet = live(A, B)
    fleet.observed(B, Load(running=3.0, waiting=2.0, memory=0.95), 10.0)
    fleet.sent(B, 11.0)
    kept = row(fleet, B, "running", "waiting", "memory", "sent", "qps", "full")
    fleet.replace([Node(address=C), Node(address=B, pool="other")])
    assert row(fleet, B, "running", "waiting", "memory", "sent", "qps", "full") == kept
    assert fleet.fleet.nodes[1].pool == "other"
    fleet.sent(B, 11.0)
    assert row(fleet, B, "qps")[0] == pytest.approx(2 * kept[4])
    assert np.isnan(row(fleet, C, "running", "memory")).all()


def test_another_pod_on_the_same_address_starts_anew():
    fleet = LiveFleet([Node(address=A, identity="pod-1")], Watermarks())
    fleet.observed(A, Load(running=9.0, memory=0.99), 10.0)
    fleet.sent(A, 10.0)
    fleet.replace([Node(address=A, identity="pod-2")])
    assert np.isnan(row(fleet, A, "running", "memory", "qps")).all()
    assert row(fleet, A, "sent", "full") == (0.0, False)


def test_a_pod_that_left_while_it_was_asked_changes_nothing():
    fleet = live(A)
    fleet.sent(B, 1.0)
    fleet.observed(B, BUSY, 1.0)
    assert fleet.unread(B) == 0.0
    assert len(fleet.fleet) == 1


def test_an_empty_fleet_ticks():
    fleet = LiveFleet([], Watermarks())
    fleet.tick(5.0)
    fleet.replace([Node(address=A)])
    fleet.sent(A, 6.0)
    assert row(fleet, A, "sent") == (1.0,)


def test_counting_a_request_costs_as_much_in_a_fleet_of_ten_thousand_as_in_one_of_ten():
    def seconds(size: int) -> float:
        fleet = live(*(f"10.0.{i // 256}.{i % 256}:8000" for i in range(size)))
        best = math.inf
        for _ in range(20):
            began = time.perf_counter()
            for _ in range(200):
                fleet.sent("10.0.0.7:8000", 50.0)
            best = min(best, time.perf_counter() - began)
        return best / 200

    assert seconds(10_000) < 5 * seconds(10)


# What came of it.


def test_a_lease_counts_each_step_once_from_wherever_it_is_told():
    books = LiveFleet([Node(address="a:1"), Node(address="b:1")], Watermarks(), watched=True)
    lease = books.sent("a:1", 0.0, tokens=100.0)
    assert lease is not None
    assert (books.fleet.inflight[0], books.fleet.queued_tokens[0]) == (1.0, 100.0)
    for _ in range(2):
        lease.began(0.25)
        assert (books.fleet.inflight[0], books.fleet.queued_tokens[0]) == (1.0, 0.0)
    for _ in range(2):
        lease.ended(1.0)
        lease.began(2.0)
    assert books.fleet.inflight[0] == 0.0
    books.tick(1.0)
    assert books.fleet.latency_ms[0] == pytest.approx(250.0, rel=0.05)
    assert np.isnan(books.fleet.latency_ms[1])


def test_a_request_that_never_began_gives_back_its_tokens_and_says_nothing_of_speed():
    books = LiveFleet([Node(address="a:1")], Watermarks(), watched=True)
    lease = books.sent("a:1", 0.0, tokens=100.0)
    assert lease is not None
    lease.ended(0.001, failed=True)
    books.tick(1.0)
    assert (books.fleet.inflight[0], books.fleet.queued_tokens[0], books.fleet.error_rate[0]) == (0.0, 0.0, 1.0)
    assert np.isnan(books.fleet.latency_ms[0])
    assert np.isnan(books.fleet.peak_ms[0])


def test_a_lease_on_a_pod_that_was_replaced_touches_nobody():
    books = LiveFleet([Node(address="a:1", identity="old")], Watermarks(), watched=True)
    lease = books.sent("a:1", 0.0, tokens=5.0)
    assert lease is not None
    books.replace([Node(address="a:1", identity="new")])
    other = books.sent("a:1", 1.0, tokens=7.0)
    lease.ended(2.0)
    assert (books.fleet.inflight[0], books.fleet.queued_tokens[0]) == (1.0, 7.0)
    assert other is not None


def test_unwatched_nothing_is_claimed_about_what_is_in_flight():
    books = LiveFleet([Node(address="a:1")], Watermarks())
    assert books.sent("a:1", 0.0, tokens=5.0) is None
    assert np.isnan(books.fleet.inflight[0])


def test_unwatched_what_waits_is_as_long_as_what_we_send():
    books = LiveFleet([Node(address="a:1")], Watermarks())
    books.sent("a:1", 0.0, tokens=500.0)
    books.observed("a:1", Load(running=1.0, waiting=4.0, memory=0.1), 1.0)
    assert books.fleet.queued_tokens[0] == pytest.approx(4 * 500.0)
    books.sent("a:1", 1.0, tokens=500.0)
    assert books.fleet.queued_tokens[0] == pytest.approx(5 * 500.0)


def test_unwatched_prompts_are_read_as_time_goes_by():
    books = LiveFleet([Node(address="a:1"), Node(address="b:1")], Watermarks(), prefill_tokens_per_s=1000.0)
    books.sent("a:1", 5.0, tokens=500.0)
    assert books.fleet.queued_tokens[0] == 500.0
    books.sent("b:1", 5.2, tokens=100.0)
    assert list(books.fleet.queued_tokens) == pytest.approx([300.0, 100.0])
    books.tick(9.0)
    assert list(books.fleet.queued_tokens) == [0.0, 0.0]


def test_a_node_that_joins_a_running_fleet_starts_slowly_and_the_first_ones_do_not():
    books = LiveFleet([Node(address="a:1")], Watermarks())
    books.replace([Node(address="a:1"), Node(address="b:1")])
    assert (books.fleet.warm[0], books.fleet.warm[1]) == (1.0, COLDEST)
    books.tick(100.0)
    books.tick(100.0 + SLOW_START_S / 2)
    assert (books.fleet.warm[0], books.fleet.warm[1]) == (1.0, 0.5)
    books.tick(100.0 + SLOW_START_S)
    assert books.fleet.warm[1] == 1.0


def test_a_pod_that_refuses_for_a_while_is_dead_until_it_is_read_again():
    books = LiveFleet([Node(address="a:1"), Node(address="b:1")], Watermarks())
    books.refused("a:1", 0.0)
    assert not books.fleet.dead[0]
    books.refused("a:1", DEAD_S)
    assert list(books.fleet.dead) == [True, False]
    assert explain(Request(path="/"), Features(), books.fleet, Rules()).dropped == {"dead": ("a:1",)}
    books.refused("b:1", 0.0)
    books.refused("b:1", DEAD_S)
    assert isinstance(decide(Request(path="/"), Features(), books.fleet, Rules()), Decision)  # a guess at least
    books.observed("a:1", Load(), DEAD_S + 1)
    assert list(books.fleet.dead) == [False, True]
