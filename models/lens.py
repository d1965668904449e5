"""How vectors are looked at before they are compared: less topic, more intent.

A text's vector holds what it is about and what is asked for. Over the labelled seeds the spread *inside* the
intents is mostly topic and language; dividing by it (whitening with the within-intent covariance, as linear
discriminant analysis does) leaves what tells intents apart. K-means and cosine then work in that view.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]

SHRINK = 0.5
"""Share of the plain average variance mixed into the covariance: 62 seeds an intent cannot fill 384 × 384.
0.3 to 0.7 differ by less than 0.01 in cross-validated accuracy."""


def grind(vectors: Doubles, labels: NDArray[Any]) -> tuple[Doubles, Doubles]:
    """(centre [d], lens [d, d]) for [n, d] labelled vectors.

    The symmetric root is taken, so that the result is unique: no eigenvector signs, the same on every machine.
    """
    names = np.unique(labels)
    means = np.array([vectors[labels == name].mean(axis=0) for name in names])
    inside = vectors - means[np.searchsorted(names, labels)]
    covariance = inside.T @ inside / len(vectors)
    average = np.trace(covariance) / len(covariance)
    covariance = (1 - SHRINK) * covariance + SHRINK * average * np.eye(len(covariance))
    values, vectors_ = np.linalg.eigh(covariance / average)
    return means.mean(axis=0), (vectors_ / np.sqrt(values)) @ vectors_.T


def unit(vectors: Doubles) -> Doubles:
    """Rows at length 1."""
    lengths: Doubles = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.maximum(lengths, 1e-12)
