"""How good a bundle is, in numbers: `python -m models.evaluate` prints the tables of this package's README."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from models import bundle, corpus
from models.backends import open_embedder
from models.bundle import Bundle, Made
from models.clusters import Clusters
from models.corpus import Line
from models.embedder import Embedder, Encoder
from models.fit import Recipe, bundle_of

HELDOUT = Path(__file__).parent / "data" / "heldout.jsonl"
SEEDS = Path(__file__).parent / "data" / "seeds.jsonl"
DATA = Path(__file__).parents[2] / "shared" / "data"
"""Beside the repository: CLINC150 and BANKING77, read where they lie."""


class Score(Struct, frozen=True):
    """A bundle against labelled texts. All in [0, 1]."""

    accuracy: float
    """Share whose nearest intent is the label."""
    sure: float
    """Share that got an intent at all."""
    accuracy_when_sure: float
    nmi: float
    """Normalised mutual information of clusters and labels (arithmetic mean)."""
    purity: float
    """Share of texts that carry their cluster's commonest label."""
    recall: dict[str, float]


def score(clusters: Clusters, vectors: NDArray[Any], labels: Sequence[str]) -> Score:
    """Score [n, d] vectors against n labels."""
    truth = np.array(labels)
    answers = [clusters.assign(vector) for vector in vectors]
    right = np.array([answer.nearest for answer in answers]) == truth
    sure = np.array([answer.intent is not None for answer in answers])
    members = (clusters.look(vectors) @ clusters.bundle.centroids.T).argmax(axis=1)
    table = contingency(members, truth)
    return Score(
        float(right.mean()),
        float(sure.mean()),
        float(right[sure].mean()) if sure.any() else 0.0,
        nmi(table),
        float(table.max(axis=1).sum() / table.sum()),
        {str(name): float(right[truth == name].mean()) for name in np.unique(truth)},
    )


def contingency(members: NDArray[Any], truth: NDArray[Any]) -> NDArray[np.float64]:
    """[clusters, labels] counts."""
    rows, columns = np.unique(members, return_inverse=True)[1], np.unique(truth, return_inverse=True)[1]
    table = np.zeros((rows.max() + 1, columns.max() + 1))
    np.add.at(table, (rows, columns), 1)
    return table


def nmi(table: NDArray[np.float64]) -> float:
    """Normalised mutual information; 1 when there is one cluster and one label."""
    joint = table / table.sum()
    a, b = joint.sum(axis=1), joint.sum(axis=0)
    mutual = _entropy(a) + _entropy(b) - _entropy(joint.ravel())
    mean = (_entropy(a) + _entropy(b)) / 2
    return float(mutual / mean) if mean > 0 else 1.0


def _entropy(p: NDArray[np.float64]) -> float:
    p = p[p > 0]
    return float(-(p * np.log(p)).sum())


def embed(embedder: Embedder, lines: Iterable[Line]) -> NDArray[np.float32]:
    """[n, d], each text on its own as in the service."""
    return np.array([embedder.embed(line.text).vector for line in lines])


class Split(Struct, frozen=True):
    """A labelled set cut in three."""

    name: str
    seeds: list[Line]
    traffic: list[Line]
    test: list[Line]


def splits(data: Path) -> list[Split]:
    """CLINC150: 20 seeds a domain, 2,433 unlabelled, 1,500 of the test half. BANKING77: 10, 10 and 20 an intent."""
    clinc, bank = corpus.clinc150(data), corpus.banking77(data)
    seeds, rest = _first(clinc["train"], 20, spread=37)
    some, more = _first(bank, 10)
    traffic, test = _first(more, 10)
    return [
        Split("CLINC150, 10 domains", seeds, rest[::3], clinc["test"][::3]),
        Split("BANKING77, 77 intents", some, traffic, test),
    ]


def _first(lines: list[Line], count: int, spread: int = 1) -> tuple[list[Line], list[Line]]:
    """(*count* lines of each intent, taken *spread* apart; the others)."""
    seen: dict[str, int] = {}
    chosen: list[Line] = []
    others: list[Line] = []
    for line in lines:
        n = seen[line.intent] = seen.get(line.intent, -1) + 1
        (chosen if n % spread == 0 and n < count * spread else others).append(line)
    return chosen, others


def fitted(split: Split, vectors: Sequence[NDArray[np.float32]], embedder: Embedder, recipe: Recipe) -> Bundle:
    """A bundle in memory, from the split's seed and traffic *vectors*."""
    made = Made(recipe.method, recipe.k, recipe.seed, recipe.seed_weight, recipe.traffic_weight, "", None)
    crowd = vectors[1] if len(vectors[1]) else None
    labels = [line.intent for line in split.seeds]
    return bundle_of(vectors[0], labels, crowd, recipe=recipe, encoder=embedder.fingerprint, made=made)


def same_intent(clusters: Clusters, one: NDArray[np.float32], two: NDArray[np.float32]) -> tuple[float, float]:
    """(share of texts with the same nearest intent, the same among those sure under both) for paired vectors."""
    pairs = [(clusters.assign(a), clusters.assign(b)) for a, b in zip(one, two, strict=True)]
    sure = [(a, b) for a, b in pairs if a.intent and b.intent]
    every = float(np.mean([a.nearest == b.nearest for a, b in pairs]))
    return every, float(np.mean([a.intent == b.intent for a, b in sure])) if sure else 1.0


def _row(*cells: object) -> None:
    print("| " + " | ".join(f"{cell:.3f}" if isinstance(cell, float) else str(cell) for cell in cells) + " |")


def _head(*cells: str) -> None:
    print()
    _row(*cells)
    _row(*["---"] * len(cells))


def _report_heldout(directory: Path, lines: list[Line]) -> None:
    loaded = bundle.load(directory)
    _head(f"bundle {loaded.manifest.id} on", "n", "accuracy", "sure", "accuracy when sure", "lowest recall")
    for precision in ("int8", "fp32"):
        embedder = open_embedder(loaded.encoder(Encoder(precision=precision)))
        vectors = embed(embedder, lines)
        foreign = np.array([line.language != "en" for line in lines])
        for what, chosen in (("all", foreign | True), ("English", ~foreign), ("other languages", foreign)):
            if chosen.any():
                labels = [line.intent for line, on in zip(lines, chosen, strict=True) if on]
                s = score(Clusters(loaded), vectors[chosen], labels)
                worst = min(s.recall, key=lambda name: s.recall[name])
                row = (s.accuracy, s.sure, s.accuracy_when_sure, f"{worst} {s.recall[worst]:.2f}")
                _row(f"held-out, {what}, {precision}", len(labels), *row)


def _report_sets(data: Path) -> None:
    _head("set", "layer", "method", "k", "accuracy", "NMI", "purity")
    for split in splits(data):
        n = len({line.intent for line in split.seeds})
        for layer in (6, 3):
            embedder = open_embedder(Encoder(layer=layer))
            seeds, traffic, test = (embed(embedder, part) for part in (split.seeds, split.traffic, split.test))
            for what, crowd, recipe in (
                ("plain", traffic, Recipe(k=n, method="plain")),
                ("plain, clusters merged by name", traffic, Recipe(k=4 * n, method="plain")),
                ("seeded, no traffic", traffic[:0], Recipe(k=n)),
                ("seeded + traffic", traffic, Recipe(k=n)),
            ):
                made = fitted(split, (seeds, crowd), embedder, recipe)
                s = score(Clusters(made), test, [line.intent for line in split.test])
                _row(split.name, layer, what, recipe.k, s.accuracy, s.nmi, s.purity)


def _report_precision(directory: Path, data: Path) -> None:
    lines = corpus.clinc150(data)["test"][::3]
    shipped = bundle.load(directory)
    split = splits(data)[0]
    _head("int8 against fp32, 1,500 CLINC150 queries", "mean cosine", "same intent", "same when sure")
    for layer in (shipped.manifest.encoder.layer, 6):
        small, exact = (open_embedder(Encoder(layer=layer, precision=p)) for p in ("int8", "fp32"))
        one, two = embed(small, lines), embed(exact, lines)
        cosine = float(np.einsum("ij,ij->i", one, two).mean())
        parts = embed(exact, split.seeds), embed(exact, split.traffic)
        plain = fitted(split, parts, exact, Recipe(k=8, method="plain"))
        seeded = fitted(split, parts, exact, Recipe(k=10))
        candidates = [("plain K-means, k = 8", plain), ("seeded K-means, 10 domains", seeded)]
        if layer == shipped.manifest.encoder.layer:
            candidates.append(("shipped bundle (its intents do not fit these queries)", shipped))
        for name, made in candidates:
            _row(f"layer {layer}, {name}", cosine, *same_intent(Clusters(made), one, two))


def main(arguments: list[str] | None = None) -> int:
    """Print the tables; those on CLINC150 and BANKING77 only where the data lie."""
    parser = argparse.ArgumentParser(prog="python -m models.evaluate", description=__doc__)
    parser.add_argument("--bundle", type=Path, default=bundle.DEFAULT)
    parser.add_argument("--heldout", type=Path, default=HELDOUT, help="labelled JSONL")
    parser.add_argument("--data", type=Path, default=DATA, help="directory with CLINC150 and BANKING77")
    options = parser.parse_args(arguments)
    _report_heldout(options.bundle, corpus.read(options.heldout, labelled=True))
    if not options.data.is_dir():
        print(f"\n{options.data} is absent: no CLINC150 and BANKING77 figures", file=sys.stderr)
        return 0
    _report_sets(options.data)
    _report_precision(options.bundle, options.data)
    return 0


if __name__ == "__main__":
    sys.exit(main())
