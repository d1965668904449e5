"""The reference encoder: sentence-transformers, imported only when it is asked for."""

from __future__ import annotations

from typing import Any

import numpy as np

from models.embedder import Embedding, Encoder, fingerprint
from models.errors import BackendMissing, WeightsRefused
from models.weights import verify
from models.window import Window


class TorchEmbedder:
    """Reads the same tokens as the default encoder, so that the two can be held to each other."""

    def __init__(self, encoder: Encoder) -> None:
        try:
            import torch  # noqa: PLC0415  gigabytes that the service does without
            from sentence_transformers import SentenceTransformer  # noqa: PLC0415
        except ImportError as exc:
            raise BackendMissing(
                "backend sentence-transformers is not installed: pip install 'isogloss[torch]'"
            ) from exc
        weights = verify(encoder.model)
        layer = weights.layers(encoder.layer)
        self.fingerprint = fingerprint(weights, encoder)
        self._window = Window(weights, min(encoder.tokens, weights.config.max_position_embeddings))
        self._torch = torch
        self._model: Any = SentenceTransformer(str(weights.directory), device="cpu", local_files_only=True)
        self._model.eval()
        if layer < weights.config.num_hidden_layers:
            _keep_layers(self._model, layer)
        self.dim = len(self.embed("").vector)

    def embed(self, text: str) -> Embedding:
        """See Embedder."""
        reading = self._window.read(text)
        ids = self._torch.from_numpy(reading.ids)
        with self._torch.inference_mode():
            features = {"input_ids": ids, "attention_mask": self._torch.ones_like(ids)}
            vector = self._model(features)["sentence_embedding"][0].numpy().astype(np.float32)
        # Some models leave the last step, unit length, to their user.
        length = max(float(np.linalg.norm(vector)), 1e-12)
        return Embedding(vector / np.float32(length), reading.known, reading.truncated)


def _keep_layers(model: Any, layer: int) -> None:
    """Drop the layers above *layer*. Raises WeightsRefused for a model that has no such list."""
    encoder = getattr(model[0].auto_model, "encoder", None)
    if encoder is None or not hasattr(encoder, "layer"):
        raise WeightsRefused("encoder.layer: this model's layers are not known here; leave it unset")
    encoder.layer = encoder.layer[:layer]
