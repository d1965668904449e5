"""A text becomes a unit vector: the question every encoder answers, and the choice of who answers it."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Literal, Protocol

import numpy as np
from msgspec import Meta, Struct
from numpy.typing import NDArray

from models.weights import Weights

Vector = NDArray[np.float32]
Precision = Literal["int8", "fp32"]


class Encoder(Struct, frozen=True, forbid_unknown_fields=True):
    """Settings. The defaults are what the shipped bundle was fit with."""

    backend: Literal["onnx", "sentence-transformers"] = "onnx"
    """`onnx` needs no torch. `sentence-transformers` is the reference, and reads models that are not BERT's."""
    precision: Precision = "int8"
    """Of the onnx backend: `int8` is the fast one, `fp32` the exact one. The other backend is always fp32."""
    model: str | None = None
    """A model directory; None is the installed package with all-MiniLM-L6-v2."""
    tokens: Annotated[int, Meta(ge=8, le=512)] = 64
    """Tokens read of a text, special tokens included: head and tail. More is slower and, here, not better."""
    layer: Annotated[int, Meta(ge=1)] | None = None
    """Layer whose tokens are averaged; None is the last. Centroids fit on one layer mean nothing on another."""
    cache: str | None = None
    """Directory for the ONNX graph; None is `$XDG_CACHE_HOME/isogloss`."""


class Fingerprint(Struct, frozen=True, forbid_unknown_fields=True):
    """Which vector space an encoder's vectors lie in."""

    weights: str
    """SHA-256 of the weights file, hex."""
    tokenizer: str
    """SHA-256 of tokenizer.json, hex."""
    layer: int
    tokens: int
    precision: Precision

    def same_space(self, other: Fingerprint) -> bool:
        """Whether vectors of the two may be compared.

        Precision is told, not asked: int8 and fp32 vectors of one text differ by a cosine of about 0.01, and the
        two backends at fp32 by less than 0.0001. Everything else makes another space.
        """
        return (self.weights, self.tokenizer, self.layer, self.tokens) == (
            other.weights,
            other.tokenizer,
            other.layer,
            other.tokens,
        )

    def __str__(self) -> str:
        return f"{self.weights[:12]}/{self.tokenizer[:12]} layer {self.layer}, {self.tokens} tokens, {self.precision}"


def fingerprint(weights: Weights, encoder: Encoder) -> Fingerprint:
    """Which space the encoder that the settings ask for makes: told from files, nothing is loaded."""
    precision: Precision = "fp32" if encoder.backend == "sentence-transformers" else encoder.precision
    return Fingerprint(weights.weights, weights.tokenizer, weights.layers(encoder.layer), encoder.tokens, precision)


class Embedding(Struct, frozen=True):
    """A text as the encoder saw it."""

    vector: Vector
    """[dim], float32, unit length, always finite."""
    known: int
    """Tokens the vocabulary has. 0: there was nothing to read, and the vector says nothing about an intent."""
    truncated: bool
    """The middle of the text was left out."""


class Embedder(Protocol):
    """Blocking and thread-safe: call it from a pool of as many threads as cores."""

    @property
    def fingerprint(self) -> Fingerprint: ...

    @property
    def dim(self) -> int:
        """Length of a vector."""

    def embed(self, text: str) -> Embedding:
        """Never fails for a string, whatever is in it; time and memory do not grow with its length."""


def cores() -> int:
    """CPUs this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
