"""The prefix ledger: what a node was sent it has, until it was pushed out."""

from hypothesis import given
from hypothesis import strategies as st

from policy.kvcache import HOT_ABOVE, Heat, PrefixLedger


def test_the_longest_prefix_without_a_gap_counts():
    ledger = PrefixLedger([10, 10, 10])
    ledger.sent(0, [1, 2, 3])
    ledger.sent(1, [1])
    assert list(ledger.matched([1, 2, 9])) == [2, 1, 0]
    assert list(ledger.matched([2, 3])) == [1 + 1, 0, 0]
    assert list(ledger.matched([9, 1])) == [0, 0, 0]
    assert list(ledger.matched([])) == [0, 0, 0]


def test_a_gap_ends_a_nodes_match_though_it_holds_what_follows():
    ledger = PrefixLedger([10, 10])
    ledger.sent(0, [1, 2, 3])
    ledger.sent(1, [1])
    ledger.sent(1, [7, 3])
    assert list(ledger.matched([1, 2, 3])) == [3, 1]


def test_a_full_node_forgets_the_ends_of_old_chains_first():
    ledger = PrefixLedger([4])
    ledger.sent(0, [1, 2, 3])
    ledger.sent(0, [1, 8])
    assert list(ledger.matched([1, 8])) == [2]
    ledger.sent(0, [1, 9])
    assert list(ledger.matched([1, 2, 3])) == [2]
    assert len(ledger) == 4


def test_a_node_that_starts_anew_has_nothing():
    ledger = PrefixLedger([9, 9])
    ledger.sent(0, [1, 2])
    ledger.sent(1, [1])
    ledger.forget(0)
    assert list(ledger.matched([1, 2])) == [0, 1]


CHAINS = st.lists(st.integers(0, 9), min_size=1, max_size=6, unique=True)


@given(st.lists(st.tuples(st.integers(0, 2), CHAINS), max_size=40))
def test_no_node_holds_more_than_it_can_and_the_index_agrees(sends):
    ledger = PrefixLedger([5, 3, 7])
    for node, blocks in sends:
        ledger.sent(node, blocks)
        assert all(len(held) <= most for held, most in zip(ledger._held, (5, 3, 7), strict=True))
        for block, holders in ledger._holders.items():
            assert holders == {n for n in range(3) if block in ledger._held[n]}
        assert (ledger.matched(blocks) <= len(blocks)).all()


def test_a_prefix_is_hot_while_many_ask_and_cold_a_minute_later():
    heat = Heat()
    hot = [heat.asked(1, i * 0.1) for i in range(20)]
    assert not any(hot[: int(HOT_ABOVE)])
    assert all(hot[7:])
    assert not heat.asked(2, 2.0)
    assert not heat.asked(1, 120.0)
