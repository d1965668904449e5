"""Which encoder the settings ask for."""

from __future__ import annotations

from models.embedder import Embedder, Encoder


def open_embedder(encoder: Encoder | None = None) -> Embedder:
    """Build the encoder that the settings ask for. Takes about a second; the first time, while the graph is built,
    about ten.

    Raises WeightsMissing, WeightsRefused, GraphRefused or BackendMissing.
    """
    encoder = encoder or Encoder()
    if encoder.backend == "onnx":
        from models.onnx_embedder import OnnxEmbedder  # noqa: PLC0415  only the chosen backend is paid for

        return OnnxEmbedder(encoder)
    from models.torch_embedder import TorchEmbedder  # noqa: PLC0415  torch must not come into the service unasked

    return TorchEmbedder(encoder)
