"""Every door under bytes nobody meant: seeds with a few edits, and bytes of no meaning at all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.targets import SEEDS, TARGETS

EDITS = st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 12), st.binary(max_size=12)), max_size=6)


@pytest.mark.parametrize("name", TARGETS)
@given(data=st.data())
def test_holds_for_a_seed_with_edits(name, data):
    text = data.draw(st.sampled_from(SEEDS[name]))
    for place, gone, instead in data.draw(EDITS):
        at = place % (len(text) + 1)
        text = text[:at] + instead + text[at + gone :]
    TARGETS[name](text)


@pytest.mark.parametrize("name", TARGETS)
@given(text=st.binary(max_size=400))
def test_holds_for_any_bytes(name, text):
    TARGETS[name](text)
