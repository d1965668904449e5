"""A prompt's beginning, named block by block."""

import json

from hypothesis import given
from hypothesis import strategies as st

from ext_proc.prefix import BLOCK_BYTES, MOST, blocks

SYSTEM = "You are a careful assistant. " * 400


def conversation(*turns: str) -> memoryview:
    return memoryview(json.dumps([{"role": "user", "content": text} for text in (SYSTEM, *turns)]).encode())


def test_the_next_turn_of_a_conversation_begins_like_the_one_before():
    first, second = blocks([conversation("one")]), blocks([conversation("one", "two", "x" * BLOCK_BYTES)])
    assert len(first) > 3
    assert second[: len(first)] == first
    assert len(second) > len(first)


def test_another_beginning_shares_nothing_and_a_late_difference_only_what_stands_before_it():
    assert not set(blocks([memoryview(b"a" + b"x" * 9 * BLOCK_BYTES)])) & set(
        blocks([memoryview(b"b" + b"x" * 9 * BLOCK_BYTES)])
    )
    one = bytes(BLOCK_BYTES * 4)
    other = one[: 2 * BLOCK_BYTES] + b"!" + one[2 * BLOCK_BYTES + 1 :]
    pair = blocks([memoryview(one)]), blocks([memoryview(other)])
    assert [a == b for a, b in zip(*pair, strict=True)] == [True, True, False, False]


def test_no_two_tenants_and_no_two_models_share_a_block():
    raw = [memoryview(bytes(4 * BLOCK_BYTES))]
    assert len({name for salt in (("a", "m"), ("b", "m"), ("a", "n"), ("am", "")) for name in blocks(raw, *salt)}) == 16


@given(st.lists(st.binary(max_size=5 * BLOCK_BYTES), max_size=3))
def test_only_whole_blocks_count_and_names_are_of_64_bits(parts):
    found = blocks(map(memoryview, parts))
    assert len(found) == sum(len(part) // BLOCK_BYTES for part in parts)
    assert all(0 <= name < 1 << 64 for name in found)


def test_a_huge_prompt_costs_no_more_than_its_first_blocks():
    assert len(blocks([memoryview(bytes(16 * 1024 * 1024))])) == MOST
