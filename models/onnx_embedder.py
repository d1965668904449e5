"""The default encoder: ONNX Runtime, no torch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime as ort

from models import graph_cache
from models.embedder import Embedding, Encoder, cores, fingerprint
from models.weights import verify
from models.window import Window

HELPERS = 1
"""Threads beside a call's own, for all calls together, where there is a core for one. A text of 64 tokens that comes
alone takes 6.8 ms instead of 10.9; under full load texts/s fall by a tenth (python -m tests.bench.encoding)."""


class OnnxEmbedder:
    """One session for all threads: `run` gives the GIL away and keeps nothing between calls."""

    def __init__(self, encoder: Encoder) -> None:
        weights = verify(encoder.model)
        layer = weights.layers(encoder.layer)
        self.fingerprint = fingerprint(weights, encoder)
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
    options.intra_op_num_threads = min(1 + HELPERS, cores())
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # Envoy needs the cores
    options.inter_op_num_threads = 1
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    # An arena keeps the largest call's memory for each thread for ever; windows are small enough to do without.
    options.enable_cpu_mem_arena = False
    options.enable_mem_pattern = False
    options.log_severity_level = 3
    return ort.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
