"""Encoders that several files share (opening one takes a second), and a BERT small enough to build in no time."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from models import bundle
from models.backends import open_embedder
from models.clusters import Clusters
from models.embedder import Embedder, Encoder
from models.weights import locate

LAYERS, HIDDEN, INNER, WORDS, PLACES = 2, 32, 64, 30522, 512


@pytest.fixture(scope="session")
def shipped() -> bundle.Bundle:
    return bundle.load()


@pytest.fixture(scope="session")
def embedder(shipped: bundle.Bundle) -> Embedder:
    """As the service opens it."""
    return open_embedder(shipped.encoder())


@pytest.fixture(scope="session")
def clusters(shipped: bundle.Bundle) -> Clusters:
    return Clusters(shipped)


@pytest.fixture(scope="session")
def whole_int8() -> Embedder:
    return open_embedder(Encoder())


@pytest.fixture(scope="session")
def whole_fp32() -> Embedder:
    return open_embedder(Encoder(precision="fp32"))


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return tiny_model(tmp_path / "tiny")


def tiny_model(
    path: Path, pooling: str = "mean", change: Callable[[dict[str, object]], object] = lambda c: None
) -> Path:
    """A two-layer BERT of random weights with the real tokenizer. *change* edits its config.json."""
    real = locate()
    path.mkdir(parents=True)
    (path / "1_Pooling").mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json", "modules.json", "vocab.txt", "special_tokens_map.json"):
        shutil.copy(real / name, path / name)
    wanted = {"mean": "mean_tokens", "cls": "cls_token", "max": "max_tokens"}[pooling]
    modes = {f"pooling_mode_{mode}": mode == wanted for mode in ("cls_token", "mean_tokens", "max_tokens")}
    (path / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": HIDDEN, **modes}))
    config = json.loads((real / "config.json").read_text()) | {
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 4,
    }
    change(config)
    (path / "config.json").write_text(json.dumps(config))
    save_file(_random_weights(), path / "model.safetensors")
    return path


def _random_weights() -> dict[str, np.ndarray]:
    random = np.random.default_rng(7)

    def of(*shape: int) -> np.ndarray:
        return random.normal(0, 0.2, shape).astype(np.float32)

    weights = {
        "embeddings.word_embeddings.weight": of(WORDS, HIDDEN),
        "embeddings.position_embeddings.weight": of(PLACES, HIDDEN),
        "embeddings.token_type_embeddings.weight": of(2, HIDDEN),
        "embeddings.LayerNorm.weight": 1 + of(HIDDEN),
        "embeddings.LayerNorm.bias": of(HIDDEN),
    }
    for i in range(LAYERS):
        for name, (out, into) in {
            "attention.self.query": (HIDDEN, HIDDEN),
            "attention.self.key": (HIDDEN, HIDDEN),
            "attention.self.value": (HIDDEN, HIDDEN),
            "attention.output.dense": (HIDDEN, HIDDEN),
            "intermediate.dense": (INNER, HIDDEN),
            "output.dense": (HIDDEN, INNER),
        }.items():
            weights[f"encoder.layer.{i}.{name}.weight"] = of(out, into)
            weights[f"encoder.layer.{i}.{name}.bias"] = of(out)
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            weights[f"encoder.layer.{i}.{name}.weight"] = 1 + of(HIDDEN)
            weights[f"encoder.layer.{i}.{name}.bias"] = of(HIDDEN)
    return weights
