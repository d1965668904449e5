"""Which intent a vector belongs to, and how sure that is. numpy only: this is on the path of every request."""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from numpy.typing import ArrayLike, NDArray

from models.bundle import Bundle
from models.embedder import Embedding

Floats = NDArray[np.float32]


class Assignment(Struct, frozen=True):
    """The intent of one vector."""

    intent: str | None
    """None is "unsure": too close to call, or unlike anything seen."""
    confidence: float
    """Share of the nearest intent in softmax(cosine / T), in (0, 1]."""
    similarity: float
    """Cosine to the nearest centroid through the lens, in [-1, 1]."""
    nearest: str
    """The nearest intent, sure or not."""
    ranking: tuple[tuple[str, float], ...]
    """Every intent with its softmax share, nearest first."""


class Clusters:
    """The bundle as arrays ready to use. Immutable, so threads may share it."""

    def __init__(self, bundle: Bundle) -> None:
        self.bundle = bundle
        self.names = bundle.names
        self.dim = len(bundle.centre)
        # Centroids sorted by name: where several share one, each run of rows is one intent.
        owners = np.array([cluster.name for cluster in bundle.manifest.clusters])
        order = np.argsort(owners, kind="stable")
        self._centroids = np.ascontiguousarray(bundle.centroids[order])
        self._starts = np.searchsorted(owners[order], np.array(self.names))
        self._one_each = len(order) == len(self.names)

    def look(self, vectors: ArrayLike) -> Floats:
        """[…, d] vectors, any float type, as unit vectors seen through the lens."""
        seen: Floats = np.asarray(vectors, dtype=np.float32) - self.bundle.centre
        if self.bundle.lens is not None:
            seen = seen @ self.bundle.lens
        length = np.sqrt(np.einsum("...i,...i->...", seen, seen))
        return np.asarray(seen / np.maximum(length, 1e-12)[..., None], dtype=np.float32)

    def similarities(self, vectors: ArrayLike) -> Floats:
        """[n, d] → [n, intents]: cosine to the nearest centroid of each of `names`."""
        cosines = self.look(vectors) @ self._centroids.T
        if self._one_each:
            return cosines
        return np.maximum.reduceat(cosines, self._starts, axis=-1)

    def assign(self, vector: ArrayLike) -> Assignment:
        """The intent of one [d] vector. Raises ValueError for another shape, or numbers that are not finite."""
        array = np.asarray(vector, dtype=np.float32)
        if array.shape != (self.dim,):
            raise ValueError(f"vector of shape {array.shape}, the bundle's dim is {self.dim}")
        cosines = self.similarities(array)
        best = int(cosines.argmax())
        similarity = float(cosines[best])
        if not np.isfinite(similarity):
            raise ValueError("vector is not finite")
        limits = self.bundle.manifest.thresholds
        shares = np.exp((cosines - similarity) / limits.temperature)
        shares /= shares.sum()
        confidence, nearest = float(shares[best]), self.names[best]
        sure = confidence >= limits.min_confidence and similarity >= limits.min_similarity
        ranking = tuple((self.names[i], float(shares[i])) for i in np.argsort(-cosines, kind="stable").tolist())
        return Assignment(nearest if sure else None, confidence, similarity, nearest, ranking)

    def of(self, embedding: Embedding) -> Assignment | None:
        """The intent of an embedded text; None when there was nothing to read in it."""
        return self.assign(embedding.vector) if embedding.known else None
