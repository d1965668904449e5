"""Which tokens of a text are read: all of a short one, head and tail of a long one."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from models.errors import WeightsRefused
from models.files import digest
from models.weights import TOKENIZER, Weights

# One text at a time needs no thread pool inside the tokenizer, and a pool would not survive a fork.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from tokenizers import Tokenizer  # after the environment it reads

CHARS_PER_TOKEN = 16
"""Characters kept for each token read. The tokenizer reads all it is given (1.25 ms per 1,000 characters), so a
text is cut before. 1,024 characters gave the same first 64 tokens for every one of 1,500 real prompts."""


class Reading(Struct, frozen=True):
    """What of a text reaches the encoder."""

    ids: NDArray[np.int64]
    """[1, n], special tokens included, n ≤ tokens."""
    known: int
    """Tokens the vocabulary has. 0: nothing to read (empty, blank, control characters, emoji, one endless word)."""
    truncated: bool
    """Something in the middle was left out."""


class Window:
    """A tokenizer with one fixed window. Its settings are never touched again, so threads may share it."""

    def __init__(self, weights: Weights, tokens: int) -> None:
        """*tokens*: special tokens included. Raises WeightsRefused when the tokenizer is not the one hashed."""
        self.tokens = tokens
        self._reach = CHARS_PER_TOKEN * tokens
        self._tokenizer = _load(weights.directory / TOKENIZER, weights.tokenizer)
        self._before, self._after = _specials(self._tokenizer)
        self._room = tokens - len(self._before) - len(self._after)
        self._unknown = {i for t in ("[UNK]", "<unk>") if (i := self._tokenizer.token_to_id(t)) is not None}

    def read(self, text: str) -> Reading:
        """Head and tail of *text*, half the room each. Any string is fine, lone surrogates too."""
        text = text.strip()
        cut = len(text) > 2 * self._reach
        pieces = [text[: self._reach], text[-self._reach :]] if cut else [text]
        # encode_batch gives the GIL away; encode would hold it.
        ids = [e.ids for e in self._tokenizer.encode_batch_fast(list(map(_utf8, pieces)), add_special_tokens=False)]
        head, tail = (ids[0], ids[1]) if cut else (ids[0], [])
        kept = [*head, *tail]
        if len(kept) > self._room:
            last = self._room // 2
            # Where one end is short (an endless word is a single token), the other takes its room.
            if cut:
                last = max(min(last, len(tail)), self._room - len(head))
            kept = kept[: self._room - last] + kept[-last:]
            cut = True
        known = sum(i not in self._unknown for i in kept)
        return Reading(np.array([[*self._before, *kept, *self._after]], dtype=np.int64), known, cut)


def _utf8(text: str) -> str:
    """JSON may carry half a surrogate pair; the tokenizer must not meet one."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _load(path: Path, expected: str) -> Tokenizer:
    data = path.read_bytes()
    if digest(data) != expected:
        raise WeightsRefused(f"{path}: changed while starting; expected SHA-256 {expected}, found {digest(data)}")
    tokenizer = Tokenizer.from_buffer(data)
    # The packaged file cuts and pads to 128 tokens on its own.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _specials(tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """The ids this tokenizer puts before and after a text, e.g. [CLS] and [SEP]."""
    bare: list[int] = tokenizer.encode("a", add_special_tokens=False).ids
    full: list[int] = tokenizer.encode("a").ids
    start = next(i for i in range(len(full)) if full[i : i + len(bare)] == bare)
    return full[:start], full[start + len(bare) :]
