"""A bundle that does not prove itself is refused, by name."""

import json

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models import bundle
from models.bundle import NAME, Bundle, Cluster
from models.embedder import Encoder
from models.errors import BundleRefused, SpaceMismatch
from tests.models.toy import ENCODER, changed, toy


@pytest.fixture
def saved(tmp_path):
    bundle.save(toy(), tmp_path / "b")
    return tmp_path / "b"


def test_what_was_saved_is_loaded(tmp_path):
    made = toy(lens=np.eye(3, dtype=np.float32))
    bundle.save(made, tmp_path / "b")
    found = bundle.load(tmp_path / "b", ENCODER)
    assert found.manifest == made.manifest
    assert np.array_equal(found.centroids, made.centroids)
    assert np.array_equal(found.lens, made.lens)


def test_the_id_follows_the_content():
    assert toy().manifest.id == toy().manifest.id
    assert toy().manifest.id != toy(names=("coding", "maths")).manifest.id
    assert toy().manifest.id != toy(centroids=[[1, 0, 0], [0, 0, 1]]).manifest.id


def test_any_flipped_byte_of_the_numbers_is_noticed(saved):
    whole = (saved / bundle.TENSORS).read_bytes()
    for at in (0, 9, len(whole) // 2, len(whole) - 1):
        (saved / bundle.TENSORS).write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(BundleRefused, match=r"centroids\.safetensors: SHA-256 is"):
            bundle.load(saved)


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (lambda m: m.update(format=2), "format 2, this program reads 1"),
        (lambda m: m.update(surprise=1), "unknown field `surprise`"),
        (lambda m: m["clusters"][0].update(name="writing"), "it was edited"),
        (lambda m: m["thresholds"].update(min_confidence=0.1), "it was edited"),
        (lambda m: m["thresholds"].update(min_confidence=7), "<= 1.0"),
        (lambda m: m.pop("encoder"), "missing required field `encoder`"),
    ],
)
def test_an_edited_manifest_is_refused(saved, edit, says):
    manifest = json.loads((saved / bundle.MANIFEST).read_text())
    edit(manifest)
    (saved / bundle.MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(BundleRefused, match=says):
        bundle.load(saved)


@pytest.mark.parametrize("name", [bundle.MANIFEST, bundle.TENSORS])
def test_a_missing_or_unreadable_file_is_named(saved, name):
    (saved / name).write_bytes(b"\xff not what it was")
    with pytest.raises(BundleRefused):
        bundle.load(saved)
    (saved / name).unlink()
    with pytest.raises(BundleRefused, match=name):
        bundle.load(saved)


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([[1, 0, 0], [0, np.nan, 0]], "not finite"),
        ([[1, 0, 0], [0, 2, 0]], "expected 1"),
        ([[1, 0, 0], [1, 0, 0]], "two centroids are equal"),
        ([[1, 0, 0]], "expected float32"),
    ],
)
def test_numbers_that_assignment_cannot_use_are_refused(rows, says):
    with pytest.raises(BundleRefused, match=says):
        toy(centroids=rows)


@pytest.mark.parametrize("name", ["", "unsure", "Coding", "a b", "x\r\ny: z", "-a", "a" * 65, "naïve"])
def test_a_name_must_be_safe_in_a_header(name):
    with pytest.raises(BundleRefused, match="name"):
        toy(names=(name, "math"))


@given(st.text(max_size=70))
def test_a_name_that_passes_is_a_token_of_lower_case_ascii(name):
    if NAME.fullmatch(name):
        assert name.isascii()
        assert name == name.lower().strip("-_ \n")
        assert 0 < len(name) <= 64


@pytest.mark.parametrize("change", [{"layer": 6}, {"tokens": 128}, {"weights": "d" * 64}, {"tokenizer": "d" * 64}])
def test_another_space_is_refused_by_name(saved, change):
    with pytest.raises(SpaceMismatch, match="the encoder is"):
        bundle.load(saved, msgspec.structs.replace(ENCODER, **change))


def test_another_precision_is_the_same_space(saved):
    assert bundle.load(saved, msgspec.structs.replace(ENCODER, precision="fp32"))


def test_an_unset_layer_is_the_bundles_and_a_set_one_stays():
    assert toy().encoder() == Encoder(layer=3)
    assert toy().encoder(Encoder(layer=5, tokens=32)) == Encoder(layer=5, tokens=32)


def test_saving_replaces_a_bundle_and_nothing_else(tmp_path, saved):
    other = toy(names=("a", "b"))
    bundle.save(other, saved)
    assert bundle.load(saved).names == ("a", "b")
    assert [path.name for path in tmp_path.iterdir()] == ["b"]
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter1").write_text("years of work")
    with pytest.raises(BundleRefused, match="not a bundle"):
        bundle.save(other, tmp_path / "thesis")


def test_a_failed_save_leaves_the_old_bundle(saved, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(bundle, "replace", full)
    with pytest.raises(OSError, match="No space"):
        bundle.save(toy(names=("a", "b")), saved)
    assert bundle.load(saved).names == ("coding", "math")


def test_a_manifest_cannot_claim_clusters_it_has_no_numbers_for(tmp_path):
    made = toy()
    more = changed(made, clusters=(*made.manifest.clusters, Cluster("writing", 0.1, 5)))
    signed = changed(more, id=bundle._id(more.manifest))
    bundle.save(signed, tmp_path / "b")
    with pytest.raises(BundleRefused, match=r"expected float32\(3, 3\)"):
        bundle.load(tmp_path / "b")


def test_the_shipped_bundle_proves_itself(shipped: Bundle, embedder):
    shipped.require(embedder.fingerprint)
    assert shipped.names == (
        "business", "coding", "conversation", "extraction", "knowledge", "math", "rewriting", "writing",
    )  # fmt: skip
    assert shipped.manifest.thresholds.min_confidence == 0.45
