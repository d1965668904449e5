"""Fitting is reproducible, keeps the seeds' names where they are, and says what is wrong with its input."""

import json

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from models import bundle
from models.corpus import read
from models.errors import BadLine, FitRefused
from models.evaluate import SEEDS
from models.fit import Recipe, fit, fit_bundle
from models.lens import unit

DIM = 12


def cloud(direction: int, n: int, spread: float = 0.25, salt: int = 0) -> np.ndarray:
    """*n* unit vectors around an axis."""
    noise = np.random.default_rng([direction, salt]).normal(0, spread, (n, DIM))
    return unit(noise + np.eye(DIM)[direction])


@pytest.fixture
def seeds():
    return np.vstack([cloud(i, 20) for i in range(3)]), [name for name in ("a", "b", "c") for _ in range(20)]


@pytest.fixture(scope="module")
def seed_vectors(embedder):
    lines = read(SEEDS, labelled=True)
    return np.array([embedder.embed(line.text).vector for line in lines]), [line.intent for line in lines]


def nearest(fitted, vectors) -> list[str]:
    seen = vectors - fitted.centre if fitted.lens is None else (vectors - fitted.centre) @ fitted.lens
    return [fitted.names[i] for i in (unit(seen) @ fitted.centroids.T).argmax(axis=1)]


def test_fitting_the_shipped_seeds_again_gives_the_shipped_bundle(shipped, embedder, tmp_path):
    steps = []
    again = fit_bundle(SEEDS, None, tmp_path / "b", embedder, progress=lambda done, total: steps.append((done, total)))
    assert again.names == shipped.names
    assert again.manifest.made == shipped.manifest.made
    assert steps[-1] == (len(steps), again.manifest.quality["seeds"])
    # int8 kernels differ between CPUs; on one machine the cosine is 1.
    assert np.einsum("ij,ij->i", again.centroids, shipped.centroids).min() > 0.99
    assert bundle.load(tmp_path / "b").manifest == again.manifest


def test_one_thread_and_eight_give_the_same_names_and_centroids(seed_vectors):
    found = []
    for threads in (1, 8):
        with threadpool_limits(threads):
            found.append(fit(*seed_vectors, seed_vectors[0][::3]))
    assert found[0].names == found[1].names
    assert np.abs(found[0].centroids - found[1].centroids).max() < 1e-5


def test_the_same_arguments_give_the_same_result(seeds):
    for recipe in (Recipe(k=3), Recipe(k=6), Recipe(k=5, method="plain")):
        one, two = fit(*seeds, recipe=recipe), fit(*seeds, recipe=recipe)
        assert one.names == two.names
        assert np.array_equal(one.centroids, two.centroids)


def test_the_order_of_the_seeds_does_not_matter(seeds):
    vectors, labels = seeds
    turned = fit(vectors[::-1], labels[::-1], recipe=Recipe(k=3))
    assert turned.names == ("a", "b", "c")
    assert np.abs(turned.centroids - fit(*seeds, recipe=Recipe(k=3)).centroids).max() < 1e-6


def test_traffic_moves_a_centroid_but_cannot_take_it_away(seeds):
    crowd = np.vstack([cloud(0, 300, salt=1), cloud(7, 300, salt=1)])  # one known intent, one nobody has named
    before, after = fit(*seeds, recipe=Recipe(k=3)), fit(*seeds, crowd, Recipe(k=3))
    assert nearest(after, seeds[0]) == seeds[1]
    kept = np.einsum("ij,ij->i", before.centroids, after.centroids)
    assert 0.5 < kept.min() < 0.9999


def test_heavier_seeds_hold_faster(seeds):
    crowd = cloud(7, 3000, salt=1)
    start = fit(*seeds, recipe=Recipe(k=3)).centroids

    def drift(recipe: Recipe) -> float:
        return float(1 - np.einsum("ij,ij->i", start, fit(*seeds, crowd, recipe).centroids).min())

    assert drift(Recipe(k=3, seed_weight=500)) < drift(Recipe(k=3)) < drift(Recipe(k=3, traffic_weight=50))


def test_twice_the_clusters_are_two_for_each_intent(seeds):
    found = fit(*seeds, recipe=Recipe(k=6))
    assert found.names == ("a", "a", "b", "b", "c", "c")
    assert nearest(found, seeds[0]) == seeds[1]


def test_plain_kmeans_uses_labels_for_names_only_and_clusters_of_one_name_are_one_intent(seeds):
    found = fit(*seeds, recipe=Recipe(k=7, method="plain"))
    assert len(found.names) == 7
    assert set(found.names) == {"a", "b", "c"}
    assert found.lens is None


@pytest.mark.parametrize(
    ("recipe", "says"),
    [
        (Recipe(k=8), "the seeds have 3 intents"),
        (Recipe(k=0), "the seeds have 3 intents"),
        (Recipe(k=63), "it needs 21 or more"),
        (Recipe(k=61, method="plain"), "60 texts"),
    ],
)
def test_what_cannot_be_clustered_is_refused(seeds, recipe, says):
    with pytest.raises(FitRefused, match=says):
        fit(*seeds, recipe=recipe)


GOOD = json.dumps({"text": "hello", "intent": "conversation"})


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('{"text": "half', r"JSON is malformed|truncated"),
        ('["text"]', "Expected `object`"),
        ('{"intent": "math"}', "missing required field `text`"),
        ('{"text": "  ", "intent": "math"}', "blank"),
        ('{"text": "2+2"}', 'no intent. Add "intent"'),
        ('{"text": "2+2", "intent": "Hard Maths"}', "intent 'Hard Maths'"),
        ('{"text": "2+2", "intent": "unsure"}', "not 'unsure'"),
    ],
)
def test_a_bad_line_is_named_with_file_number_and_fix(tmp_path, line, says):
    file = tmp_path / "seeds.jsonl"
    file.write_text(f"{GOOD}\n\n{line}\n{GOOD}\n")
    with pytest.raises(BadLine, match=says) as caught:
        read(file, labelled=True)
    assert f"{file}:3: " in str(caught.value)


def test_bytes_that_are_not_utf8_an_empty_file_and_no_file_are_named(tmp_path):
    file = tmp_path / "traffic.jsonl"
    file.write_bytes(b'{"text": "\xff"}\n')
    with pytest.raises(BadLine, match=r"traffic\.jsonl:1"):
        read(file, labelled=False)
    file.write_bytes(b"\n")
    with pytest.raises(BadLine, match="no lines"):
        read(file, labelled=False)
    with pytest.raises(BadLine, match="No such file"):
        read(tmp_path / "nothing.jsonl", labelled=False)
