"""The default encoder: ONNX Runtime, one thread a call, no torch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime as ort

from models import graph_cache
from models.embedder import Embedding, Encoder, Fingerprint
from models.weights import verify
from models.window import Window


class OnnxEmbedder:
    """One session for all threads: `run` gives the GIL away and keeps nothing between calls."""

    def __init__(self, encoder: Encoder) -> None:
        weights = verify(encoder.model)
        layer = weights.layers(encoder.layer)
        self.fingerprint = Fingerprint(weights.weights, weights.tokenizer, layer, encoder.tokens, encoder.precision)
        self.dim = weights.config.hidden_size
        self._window = Window(weights, min(encoder.tokens, weights.config.max_position_embeddings))
        cache = Path(encoder.cache) if encoder.cache else graph_cache.default_directory()
        self._session = _session(graph_cache.graph(weights, layer, encoder.precision, cache))

    def embed(self, text: str) -> Embedding:
        """See Embedder. The text goes alone: int8 scales are chosen per call, so a batch would change the vector."""
        reading = self._window.read(text)
        (vectors,) = self._session.run(None, {"input_ids": reading.ids})
        return Embedding(np.ascontiguousarray(vectors[0], dtype=np.float32), reading.known, reading.truncated)


def _session(graph: bytes) -> ort.InferenceSession:
    options = ort.SessionOptions()
    # The caller's pool is the parallelism; Envoy needs the other cores.
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    # An arena keeps the largest call's memory for each thread for ever; windows are small enough to do without.
    options.enable_cpu_mem_arena = False
    options.enable_mem_pattern = False
    options.log_severity_level = 3
    return ort.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
