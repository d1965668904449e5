"""A vector gets the nearest intent, or none when that would be a guess."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from models.bundle import Thresholds
from models.clusters import Clusters
from models.embedder import Embedding
from tests.models.toy import toy

PLANE = Clusters(toy(thresholds=Thresholds(min_similarity=0.3)))


def test_the_nearest_centroid_names_the_intent():
    found = PLANE.assign([0.9, 0.1, 0.0])
    assert (found.intent, found.nearest) == ("coding", "coding")
    assert found.similarity == pytest.approx(0.9 / np.hypot(0.9, 0.1))
    assert found.confidence > 0.99


def test_between_two_intents_it_is_unsure_but_still_says_which_was_nearest():
    three = Clusters(toy(("a", "b", "c"), thresholds=Thresholds(temperature=0.05)))
    found = three.assign([1.0, 0.995, 0.99])
    assert (found.intent, found.nearest) == (None, "a")
    assert found.confidence < 0.45


def test_unlike_anything_seen_it_is_unsure_however_clear_the_winner():
    found = PLANE.assign([0.2, 0.0, 0.98])
    assert (found.intent, found.nearest) == (None, "coding")
    assert found.confidence > 0.9
    assert found.similarity < 0.3


def test_an_intent_of_several_centroids_is_as_near_as_its_nearest():
    two = Clusters(toy(("math", "coding", "math"), [[1, 0, 0], [0, 1, 0], [0, 0, 1]]))
    assert two.names == ("coding", "math")
    assert two.assign([0, 0, 1]).nearest == two.assign([1, 0, 0]).nearest == "math"
    assert [name for name, _ in two.assign([0, 1, 0]).ranking] == ["coding", "math"]


def test_the_lens_is_looked_through():
    swap = np.array([[0, 1, 0], [1, 0, 0], [0, 0, 1]], dtype=np.float32)
    assert Clusters(toy(lens=swap)).assign([1, 0, 0]).nearest == "math"


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ">f4"])
def test_any_float_type_and_layout_gives_the_same(dtype):
    apart = np.array([0.75, 9.0, 0.25, 9.0, 0.5, 9.0], dtype=dtype)[::2]
    assert not apart.flags.c_contiguous
    assert PLANE.assign(apart) == PLANE.assign(np.array([0.75, 0.25, 0.5], dtype=np.float32))


@pytest.mark.parametrize("vector", [[1.0], [1.0, 0, 0, 0], [[1.0, 0, 0]], []])
def test_another_dimension_is_refused(vector):
    with pytest.raises(ValueError, match="the bundle's dim is 3"):
        PLANE.assign(vector)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_numbers_that_are_not_finite_are_refused(bad):
    with np.errstate(invalid="ignore"), pytest.raises(ValueError, match="not finite"):
        PLANE.assign([bad, 0.0, 0.0])


@given(arrays(np.float32, 3, elements=st.floats(-1, 1, width=32)))
def test_shares_are_a_distribution_in_descending_order(vector):
    found = PLANE.assign(vector)
    shares = [share for _, share in found.ranking]
    assert sum(shares) == pytest.approx(1, abs=1e-5)
    assert shares == sorted(shares, reverse=True)
    assert found.ranking[0] == (found.nearest, found.confidence)
    assert -1.001 <= found.similarity <= 1.001


def test_nothing_to_read_is_no_intent_at_all():
    assert PLANE.of(Embedding(np.array([1, 0, 0], dtype=np.float32), known=0, truncated=False)) is None
    assert PLANE.of(Embedding(np.array([1, 0, 0], dtype=np.float32), known=1, truncated=False)) is not None
