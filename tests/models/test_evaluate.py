"""The figures we claim, held."""

from collections import Counter

import numpy as np
import pytest
from sklearn.metrics import normalized_mutual_info_score

from models import corpus, evaluate
from models.backends import open_embedder
from models.clusters import Clusters
from models.embedder import Encoder
from models.evaluate import DATA, HELDOUT, SEEDS, embed, fitted, same_intent, score, splits
from models.fit import Recipe

needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"CLINC150 and BANKING77 are not in {DATA}")
EIGHT = {"coding", "math", "writing", "rewriting", "knowledge", "extraction", "business", "conversation"}


def test_the_seeds_and_the_held_out_set_are_as_large_as_promised_and_share_no_text():
    seeds, heldout = corpus.read(SEEDS, labelled=True), corpus.read(HELDOUT, labelled=True)
    for lines, least in ((seeds, 40), (heldout, 15)):
        counts = Counter(line.intent for line in lines)
        assert counts.keys() == EIGHT
        assert min(counts.values()) >= least
    texts = [line.text.strip().lower() for line in (*seeds, *heldout)]
    assert len(set(texts)) == len(texts)


def test_held_out_accuracy_is_at_least_090_with_unsure_counted_as_wrong(embedder, clusters):
    lines = corpus.read(HELDOUT, labelled=True)
    found = [clusters.of(embedder.embed(line.text)) for line in lines]
    assert np.mean([answer.intent == line.intent for answer, line in zip(found, lines, strict=True)]) >= 0.90


def test_no_intent_is_lost_to_the_others(embedder, clusters):
    lines = corpus.read(HELDOUT, labelled=True)
    result = score(clusters, embed(embedder, lines), [line.intent for line in lines])
    assert min(result.recall.values()) >= 0.75


def test_nmi_is_scikit_learns():
    random = np.random.default_rng(3)
    for _ in range(20):
        a, b = random.integers(0, 5, 60), random.integers(0, 7, 60)
        assert evaluate.nmi(evaluate.contingency(a, b)) == pytest.approx(normalized_mutual_info_score(a, b))
    assert evaluate.nmi(evaluate.contingency(np.zeros(3), np.zeros(3))) == 1.0


@needs_data
def test_int8_keeps_at_least_98_percent_of_clinc150_queries_in_their_cluster():
    split = splits(DATA)[0]
    small, exact = (open_embedder(Encoder(layer=3, precision=p)) for p in ("int8", "fp32"))
    lines = split.test[::2]
    parts = embed(exact, split.seeds), embed(exact, split.traffic[::2])
    made = fitted(split, parts, exact, Recipe(k=8, method="plain"))
    assert same_intent(Clusters(made), embed(small, lines), embed(exact, lines))[0] >= 0.98


@needs_data
def test_on_clinc150_seeded_beats_plain_by_far(embedder):
    split = splits(DATA)[0]
    parts, test = (embed(embedder, split.seeds), embed(embedder, split.traffic[::3])), split.test[::3]
    vectors, labels = embed(embedder, test), [line.intent for line in test]
    seeded, plain = (
        score(Clusters(fitted(split, parts, embedder, recipe)), vectors, labels).accuracy
        for recipe in (Recipe(k=10), Recipe(k=10, method="plain"))
    )
    assert seeded >= 0.75
    assert seeded > plain + 0.2


def test_the_command_says_so_when_the_data_are_absent(tmp_path, capsys):
    assert evaluate.main(["--data", str(tmp_path / "nowhere")]) == 0
    printed = capsys.readouterr()
    assert "held-out, all, int8" in printed.out
    assert "absent" in printed.err
