"""Head and tail of a text reach the encoder, whatever the text is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from models.weights import TOKENIZER, locate, verify
from models.window import Window

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=6000)


@pytest.fixture(scope="module")
def window() -> Window:
    return Window(verify(), 64)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    tokenizer = Tokenizer.from_file(str(locate() / TOKENIZER))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def test_a_short_text_is_read_whole(window, tokenizer):
    text = "Translate to French: where is the nearest train station?"
    reading = window.read(text)
    assert reading.ids.tolist() == [tokenizer.encode(text).ids]
    assert not reading.truncated


@pytest.mark.parametrize("words", [60, 100, 3000])
def test_of_a_long_text_the_first_and_the_last_tokens_are_read(window, tokenizer, words):
    text = " ".join(f"word{i}" for i in range(words))
    all_of_it = tokenizer.encode(text).ids
    assert window.read(text).ids.tolist() == [all_of_it[:32] + all_of_it[-32:]]
    assert window.read(text).truncated


def test_62_tokens_fit_and_63_do_not(window):
    assert not window.read("a " * 62).truncated
    assert window.read("a " * 63).truncated


def test_where_one_end_is_an_endless_word_the_other_gets_its_room(window):
    question = "how do I decode this string in python with the standard library only please " * 4
    assert window.read(question + "a" * 100_000).known >= 60
    assert window.read("a" * 100_000 + " " + question).known >= 60


@pytest.mark.parametrize("text", ["", "   ", "\n\t", "\x00\x01\x02", "😀🎉", "a" * 5000, "\ud83d"])
def test_a_text_of_no_known_word_says_so(window, text):
    assert window.read(text).known == (1 if text == "\ud83d" else 0)  # half a pair becomes "?"


@given(ANY_TEXT)
def test_never_more_than_the_window_and_never_an_error(text):
    reading = WINDOW.read(text)
    assert reading.ids.shape[0] == 1
    assert 2 <= reading.ids.shape[1] <= 64


WORDS = ("red", "green", "blue", "seven", "jumps", "over", "lazy", "dogs")


@given(st.lists(st.sampled_from(WORDS), min_size=80, max_size=400))
def test_the_last_word_is_always_read(words):
    text = " ".join(words)
    assert WINDOW.read(text + " zebra").ids[0, -2] == WINDOW.read("zebra").ids[0, 1]


WINDOW = Window(verify(), 64)
