"""Intents from examples: K-means that starts from a labelled seed set and keeps it as anchor.

Plain K-means finds topics, and other ones with every seed. Here each intent's seeds stand in the data as one heavy
point, so that unlabelled traffic can move a centroid but not take it away from its name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from models import bundle, corpus
from models.bundle import Bundle, Cluster, Made, Thresholds
from models.clusters import Clusters
from models.embedder import Embedder, Fingerprint
from models.errors import BackendMissing, FitRefused
from models.files import digest
from models.lens import Doubles, grind, unit

Method = Literal["seeded", "plain"]
Progress = Callable[[int, int], None]
"""Told (done, total) texts."""

TEMPERATURES = (0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1, 0.15, 0.2, 0.3)
FOLDS = 6
UNLIKE = 0.01
"""Share of held-back seeds that may fall under the similarity threshold."""


class Recipe(Struct, frozen=True, forbid_unknown_fields=True):
    """How to fit."""

    k: int = 8
    """Clusters. Seeded: as many for each intent, so a multiple of their number. Plain: any; clusters of one name
    are one intent."""
    method: Method = "seeded"
    seed_weight: float = 20.0
    """What one seed weighs against one text of the traffic at its weight."""
    traffic_weight: float = 1.0
    seed: int = 0


class Fitted(Struct, frozen=True, eq=False):
    """Centroids with their names, before they are a bundle."""

    names: tuple[str, ...]
    centroids: Doubles
    """[k, d], unit rows, seen through the lens."""
    centre: Doubles
    lens: Doubles | None
    spread: tuple[float, ...]
    texts: tuple[int, ...]


def fit(
    seeds: NDArray[Any], labels: Sequence[str], traffic: NDArray[Any] | None = None, recipe: Recipe | None = None
) -> Fitted:
    """Cluster [n, d] seed vectors and [m, d] traffic vectors, all of unit length.

    The same arguments give the same result. Raises FitRefused when they cannot give *k* clusters.
    """
    recipe = recipe or Recipe()
    vectors, names = np.asarray(seeds, dtype=np.float64), np.array(labels)
    crowd = np.empty((0, vectors.shape[1])) if traffic is None else np.asarray(traffic, dtype=np.float64)
    if len(names) == 0 or len(names) != len(vectors):
        raise FitRefused(f"{len(vectors)} seed vectors with {len(names)} labels")
    if recipe.method == "seeded":
        return _seeded(vectors, names, crowd, recipe)
    return _plain(vectors, names, crowd, recipe)


def _seeded(vectors: Doubles, labels: NDArray[Any], crowd: Doubles, recipe: Recipe) -> Fitted:
    intents = np.unique(labels)
    each, rest = divmod(recipe.k, len(intents))
    if rest or not each:
        raise FitRefused(f"k is {recipe.k}, but the seeds have {len(intents)} intents: use a multiple of that")
    smallest = min(intents, key=lambda name: int((labels == name).sum()))
    if (count := int((labels == smallest).sum())) < max(2, each):
        raise FitRefused(f"intent {smallest} has {count} seeds, it needs {max(2, each)} or more")
    centre, lens = grind(vectors, labels)
    seen, crowd_seen = unit((vectors - centre) @ lens), unit((crowd - centre) @ lens)

    owner = np.empty(len(seen), dtype=np.int64)  # the cluster each seed belongs to, for good
    for i, name in enumerate(intents):
        own = np.flatnonzero(labels == name)
        parts = np.zeros(len(own), dtype=np.int64) if each == 1 else _kmeans(each, recipe).fit_predict(seen[own])
        owner[own] = i * each + parts
    counts = np.bincount(owner, minlength=recipe.k)
    # A mean weighing as much as its seeds pulls as they would, and cannot be split between clusters.
    anchors = np.array([seen[owner == c].mean(axis=0) for c in range(recipe.k)])
    means = _kmeans(recipe.k, recipe, start=unit(anchors)).fit(
        np.vstack([anchors, crowd_seen]),
        sample_weight=np.concatenate([counts * recipe.seed_weight, np.full(len(crowd_seen), recipe.traffic_weight)]),
    )
    members = np.concatenate([owner, means.labels_[recipe.k :]])
    names = tuple(str(name) for name in np.repeat(intents, each))
    return _fitted(
        names=names,
        centroids=unit(means.cluster_centers_),
        centre=centre,
        lens=lens,
        points=np.vstack([seen, crowd_seen]),
        members=members,
    )


def _plain(vectors: Doubles, labels: NDArray[Any], crowd: Doubles, recipe: Recipe) -> Fitted:
    """K-means on everything, no label used; afterwards a cluster is named by the seeds that fell into it."""
    points = np.vstack([vectors, crowd])
    if recipe.k < 1 or len(np.unique(points, axis=0)) < recipe.k:
        raise FitRefused(f"k is {recipe.k}, but there are {len(points)} texts")
    means = _kmeans(recipe.k, recipe).fit(points)
    centroids, members = unit(means.cluster_centers_), means.labels_
    names = tuple(_name(c, centroids[c], members[: len(labels)], vectors, labels) for c in range(recipe.k))
    return _fitted(
        names=names,
        centroids=centroids,
        centre=np.zeros(points.shape[1]),
        lens=None,
        points=points,
        members=members,
    )


def _name(cluster: int, centroid: Doubles, members: NDArray[Any], vectors: Doubles, labels: NDArray[Any]) -> str:
    """The commonest intent of its seeds; without seeds, the intent whose seeds are nearest on average."""
    intents, counts = np.unique(labels[members == cluster], return_counts=True)
    if len(intents):
        return str(intents[counts.argmax()])
    every = np.unique(labels)
    return str(every[np.argmax([vectors[labels == name].mean(axis=0) @ centroid for name in every])])


def _fitted(
    *,
    names: tuple[str, ...],
    centroids: Doubles,
    centre: Doubles,
    lens: Doubles | None,
    points: Doubles,
    members: NDArray[Any],
) -> Fitted:
    # K-means numbers clusters by chance; a name and the heavier first is an order one can rely on.
    counts = np.bincount(members, minlength=len(names))
    order = sorted(range(len(names)), key=lambda c: (names[c], -counts[c], c))
    gap = 1 - np.einsum("ij,ij->i", points, centroids[members])
    spread = [float(gap[members == c].mean()) if counts[c] else 0.0 for c in order]
    return Fitted(
        tuple(names[c] for c in order),
        centroids[order],
        centre,
        lens,
        tuple(round(max(s, 0.0), 4) for s in spread),
        tuple(int(counts[c]) for c in order),
    )


def _kmeans(k: int, recipe: Recipe, start: Doubles | None = None) -> Any:
    try:
        from sklearn.cluster import KMeans  # noqa: PLC0415  fitting is done offline, the service lives without
    except ImportError as exc:
        raise BackendMissing("fitting needs scikit-learn: pip install 'isogloss[fit]'") from exc
    if start is None:
        return KMeans(k, n_init=4, random_state=recipe.seed)
    return KMeans(k, init=start, n_init=1, random_state=recipe.seed)


def fit_bundle(
    seeds: Path,
    traffic: Path | None,
    out: Path,
    embedder: Embedder,
    *,
    recipe: Recipe | None = None,
    progress: Progress = lambda done, total: None,
) -> Bundle:
    """`isogloss fit`: read the texts, embed them, cluster, measure, write the bundle to *out*.

    Raises BadLine, FitRefused, BundleRefused or BackendMissing.
    """
    recipe = recipe or Recipe()
    labelled = corpus.read(seeds, labelled=True)
    unlabelled = corpus.read(traffic, labelled=False) if traffic else []
    texts = [line.text for line in (*labelled, *unlabelled)]
    vectors = np.empty((len(texts), embedder.dim), dtype=np.float32)
    for i, text in enumerate(texts):  # one by one, as the service will: int8 vectors depend on their batch
        vectors[i] = embedder.embed(text).vector
        progress(i + 1, len(texts))
    labels = [line.intent for line in labelled]
    made = Made(
        recipe.method,
        recipe.k,
        recipe.seed,
        recipe.seed_weight,
        recipe.traffic_weight,
        _digest([f"{line.intent}\0{line.text}" for line in labelled]),
        _digest([line.text for line in unlabelled]) if unlabelled else None,
    )
    crowd = vectors[len(labels) :] if unlabelled else None
    result = bundle_of(vectors[: len(labels)], labels, crowd, recipe=recipe, encoder=embedder.fingerprint, made=made)
    bundle.save(result, out)
    return result


def bundle_of(
    seeds: NDArray[Any],
    labels: Sequence[str],
    traffic: NDArray[Any] | None = None,
    *,
    recipe: Recipe,
    encoder: Fingerprint,
    made: Made,
) -> Bundle:
    """Fit on all seeds; thresholds and quality come from seeds that were held back in turn."""

    def to_bundle(fitted: Fitted, thresholds: Thresholds, quality: dict[str, float]) -> Bundle:
        return bundle.make(
            encoder=encoder,
            clusters=tuple(map(Cluster, fitted.names, fitted.spread, fitted.texts)),
            thresholds=thresholds,
            made=made,
            quality=quality,
            centroids=fitted.centroids.astype(np.float32),
            centre=fitted.centre.astype(np.float32),
            lens=None if fitted.lens is None else fitted.lens.astype(np.float32),
        )

    whole = fit(seeds, labels, traffic, recipe)

    def fit_without(back: NDArray[np.bool_]) -> Clusters:
        if recipe.method == "plain":  # labels gave it its names only
            return Clusters(to_bundle(whole, Thresholds(), {}))
        try:
            part = fit(np.asarray(seeds)[~back], np.array(labels)[~back].tolist(), traffic, recipe)
        except FitRefused:  # too few seeds to hold any back: measured on themselves, which flatters
            part = whole
        return Clusters(to_bundle(part, Thresholds(), {}))

    cosines, truth = _held_back(np.asarray(seeds), np.array(labels), recipe.seed, fit_without)
    quality = {
        "seeds": float(len(labels)),
        "traffic": float(0 if traffic is None else len(traffic)),
        "cross_validated_accuracy": round(float((cosines.argmax(axis=1) == truth).mean()), 4),
    }
    return to_bundle(whole, _thresholds(cosines, truth), quality)


def _held_back(
    vectors: NDArray[Any], labels: NDArray[Any], seed: int, fit_without: Callable[[NDArray[np.bool_]], Clusters]
) -> tuple[Doubles, NDArray[np.int64]]:
    """([n, intents] cosines, [n] intents) of every seed under a fit that has not seen it."""
    intents = np.unique(labels)
    fold = np.empty(len(labels), dtype=np.int64)
    for name in intents:
        own = np.flatnonzero(labels == name)
        fold[own] = np.random.default_rng(seed).permutation(len(own)) % FOLDS
    cosines = np.full((len(labels), len(intents)), -1.0)
    for back in (fold == f for f in range(FOLDS)):
        if back.any():
            clusters = fit_without(back)
            columns = np.searchsorted(intents, np.array(clusters.names))
            cosines[np.ix_(back, columns)] = clusters.similarities(vectors[back])
    return cosines, np.searchsorted(intents, labels)


def _thresholds(cosines: Doubles, truth: NDArray[np.int64]) -> Thresholds:
    def loss(temperature: float) -> float:
        shares = np.exp((cosines - cosines.max(axis=1, keepdims=True)) / temperature)
        return float(-np.log(shares[np.arange(len(truth)), truth] / shares.sum(axis=1) + 1e-12).mean())

    similarity = float(np.quantile(cosines.max(axis=1), UNLIKE))
    return Thresholds(temperature=min(TEMPERATURES, key=loss), min_similarity=round(similarity, 4))


def _digest(texts: Sequence[str]) -> str:
    """Order and bounds of the texts count; how the file was laid out does not."""
    return digest("".join(f"{len(t)}\0{t}" for t in texts).encode("utf-8", "surrogatepass"))
