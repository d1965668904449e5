"""Latency windows: quantiles in bounded memory, slow answers at once, errors never as speed."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.latency import BUCKETS, DECAY_S, GROWTH, Latencies


@given(st.lists(st.floats(1.0, 100_000.0), min_size=1, max_size=200), st.sampled_from([0.5, 0.95, 0.99]))
def test_a_quantile_is_at_most_a_bucket_off(values, q):
    seen = Latencies(1)
    for ms in values:
        seen.answered(0, ms, 0.0)
    exact = float(np.quantile(values, q, method="inverted_cdf"))
    assert exact / GROWTH <= seen.quantile(q)[0] <= exact * GROWTH


def test_nothing_seen_is_not_known():
    seen = Latencies(2)
    seen.answered(0, 10.0, 0.0)
    assert math.isnan(seen.quantile(0.99)[1])
    assert math.isnan(seen.error_rate()[1])
    assert math.isnan(seen.peak_ms[1])


def test_what_was_slow_long_ago_is_forgotten():
    seen = Latencies(1)
    for _ in range(100):
        seen.answered(0, 5000.0, 0.0)
    for _ in range(100):
        seen.answered(0, 50.0, 10 * DECAY_S)
    assert seen.quantile(0.99)[0] == pytest.approx(50.0, rel=0.1)


def test_errors_are_counted_and_never_fast():
    seen = Latencies(1)
    seen.answered(0, 100.0, 0.0)
    for _ in range(3):
        seen.failed(0, 0.0)
    assert seen.error_rate()[0] == pytest.approx(0.75)
    assert seen.quantile(0.5)[0] == pytest.approx(100.0, rel=0.1)


def test_the_peak_average_jumps_up_and_sinks_slowly():
    seen = Latencies(1)
    seen.answered(0, 100.0, 0.0)
    seen.answered(0, 2000.0, 1.0)
    assert seen.peak_ms[0] == 2000.0
    seen.answered(0, 100.0, 11.0)
    assert seen.peak_ms[0] == pytest.approx(2000 * math.exp(-1) + 100 * (1 - math.exp(-1)))


def test_a_year_of_answers_overflows_nothing_and_takes_no_more_room():
    seen = Latencies(1)
    for hour in range(0, 24 * 365, 7):
        seen.answered(0, 100.0, hour * 3600.0)
        assert np.isfinite(seen._counts).all()
    assert seen._counts.shape == (1, BUCKETS)
    assert seen.quantile(0.5)[0] == pytest.approx(100.0, rel=0.1)


def test_a_node_that_stays_keeps_its_figures():
    seen = Latencies(2)
    seen.answered(1, 300.0, 0.0)
    kept = seen.keep([None, 1, 0])
    assert math.isnan(kept.peak_ms[0])
    assert kept.peak_ms[1] == 300.0
    assert kept.quantile(0.5)[1] == seen.quantile(0.5)[1]
