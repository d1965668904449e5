"""Bundles small enough to see through."""

import msgspec
import numpy as np

from models import bundle
from models.bundle import Bundle, Cluster, Made, Thresholds
from models.embedder import Fingerprint

ENCODER = Fingerprint(weights="a" * 64, tokenizer="b" * 64, layer=3, tokens=64, precision="int8")
MADE = Made(method="seeded", k=2, seed=0, seed_weight=20.0, traffic_weight=1.0, seeds="c" * 64, traffic=None)


def toy(
    names: tuple[str, ...] = ("coding", "math"),
    centroids: list[list[float]] | None = None,
    thresholds: Thresholds | None = None,
    lens: np.ndarray | None = None,
) -> Bundle:
    """By default: coding points along x, math along y, in three dimensions."""
    rows = np.array(centroids or np.eye(3)[: len(names)], dtype=np.float32)
    return bundle.make(
        encoder=ENCODER,
        clusters=tuple(Cluster(name, 0.1, 5) for name in names),
        thresholds=thresholds or Thresholds(),
        made=MADE,
        quality={},
        centroids=rows,
        centre=np.zeros(rows.shape[1], dtype=np.float32),
        lens=lens,
    )


def changed(made: Bundle, **fields: object) -> Bundle:
    """Fields of its manifest replaced, nothing else: what an attacker, or a bug, would write."""
    return Bundle(msgspec.structs.replace(made.manifest, **fields), made.centroids, made.centre, made.lens)
