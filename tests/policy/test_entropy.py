"""Load entropy and the weights from it (design formula 1)."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.entropy import MAX_SHARE, entropy, evenness, weights


def test_equal_load_and_no_load_are_even():
    for load in (np.full(8, 3.0), np.zeros(8)):
        assert entropy(load) == pytest.approx(3.0)
        assert evenness(load) == pytest.approx(1.0)
        assert weights(load) == pytest.approx(np.full(8, 1 / 8))


def test_all_on_one_node_is_no_entropy():
    assert entropy(np.array([5.0, 0.0, 0.0])) == 0.0
    assert evenness(np.array([5.0])) == 1.0


def test_an_idle_node_does_not_get_everything():
    out = weights(np.array([10.0, 10.0, 10.0, 0.0]))
    assert out[3] == pytest.approx(MAX_SHARE)
    assert out[0] == pytest.approx((1 - MAX_SHARE) / 3)


@given(st.lists(st.floats(0.0, 1e6), min_size=1, max_size=50))
def test_weights_are_shares_and_fall_with_load(loads):
    load = np.array(loads)
    out = weights(load)
    assert out.sum() == pytest.approx(1.0)
    assert (out > 0).all()
    order = np.argsort(load, kind="stable")
    assert (np.diff(out[order]) <= 1e-12).all()
    assert 0.0 <= entropy(load) <= math.log2(load.size) + 1e-9
