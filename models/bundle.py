"""A bundle: the intents of one encoder, as two files that prove each other. No pickle.

`centroids.safetensors` holds the numbers, `manifest.json` what they mean and their SHA-256.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import Meta, Struct
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as tensors_of
from safetensors.numpy import save as bytes_of

from models.embedder import Encoder, Fingerprint
from models.errors import BundleRefused, SpaceMismatch
from models.files import digest, replace

FORMAT = 1
MANIFEST, TENSORS = "manifest.json", "centroids.safetensors"
DEFAULT = Path(__file__).parent / "default"
"""The bundle that ships: eight intents, fit on data/seeds.jsonl."""

# A name travels in a header and in metrics. `unsure` is what we say when no name fits.
NAME = re.compile(r"(?!unsure$)[a-z0-9](?:[a-z0-9_-]{0,62}[a-z0-9])?")

Floats = NDArray[np.float32]
Share = Annotated[float, Meta(ge=0.0, le=1.0)]


class Cluster(Struct, frozen=True, forbid_unknown_fields=True):
    """One centroid. Several may carry one name: the intent is as near as its nearest centroid."""

    name: str
    spread: Annotated[float, Meta(ge=0.0, le=2.0)]
    """Mean of 1 - cosine over the texts it was fit on; 0 is a point."""
    texts: Annotated[int, Meta(ge=0)]
    """How many texts it was fit on."""


class Thresholds(Struct, frozen=True, forbid_unknown_fields=True):
    """When an intent is not claimed."""

    temperature: Annotated[float, Meta(gt=0.0, le=10.0)] = 0.05
    """T in softmax(cosine / T). Fit so that a confidence of 0.8 is right in about 80 % of cases."""
    min_confidence: Share = 0.45
    """Under it the two best intents are too close to call."""
    min_similarity: Annotated[float, Meta(ge=-1.0, le=1.0)] = 0.0
    """Under it the text is unlike anything seen; a cosine."""


class Made(Struct, frozen=True, forbid_unknown_fields=True):
    """How the bundle was fit: with these, the same command gives it again."""

    method: Literal["seeded", "plain"]
    k: int
    seed: int
    seed_weight: float
    traffic_weight: float
    seeds: str
    """SHA-256 of the seed texts and their intents."""
    traffic: str | None
    """SHA-256 of the traffic texts; None if there was none."""


class Manifest(Struct, frozen=True, forbid_unknown_fields=True):
    """Everything about a bundle but its numbers."""

    format: int
    id: str
    """First 12 hex digits of the SHA-256 of this manifest with an empty id: names numbers and meaning at once."""
    encoder: Fingerprint
    clusters: tuple[Cluster, ...]
    thresholds: Thresholds
    made: Made
    quality: dict[str, float]
    tensors: str
    """SHA-256 of centroids.safetensors, hex."""


class Bundle(Struct, frozen=True, eq=False):
    """A verified bundle."""

    manifest: Manifest
    centroids: Floats
    """[k, d], unit rows, as seen through the lens."""
    centre: Floats
    """[d], taken from every vector first: what all texts share says nothing."""
    lens: Floats | None
    """[d, d], or None for none: dims that vary inside every intent shrink, dims that tell intents apart stay."""

    @property
    def names(self) -> tuple[str, ...]:
        """The intents, each once, sorted."""
        return tuple(sorted({cluster.name for cluster in self.manifest.clusters}))

    def encoder(self, settings: Encoder | None = None) -> Encoder:
        """*settings* with the layer this bundle was fit on where none is set."""
        settings = settings or Encoder()
        if settings.layer is not None:
            return settings
        return msgspec.structs.replace(settings, layer=self.manifest.encoder.layer)

    def require(self, encoder: Fingerprint) -> None:
        """Raises SpaceMismatch unless *encoder* makes vectors of this bundle's space."""
        if not self.manifest.encoder.same_space(encoder):
            raise SpaceMismatch(
                f"bundle {self.manifest.id} was fit on {self.manifest.encoder}, the encoder is {encoder}."
                " Use the bundle's encoder settings, or fit a bundle with this encoder: isogloss fit"
            )


def make(
    *,
    encoder: Fingerprint,
    clusters: tuple[Cluster, ...],
    thresholds: Thresholds,
    made: Made,
    quality: dict[str, float],
    centroids: Floats,
    centre: Floats,
    lens: Floats | None,
) -> Bundle:
    """Put a bundle together: digests, id, and the same checks as on loading."""
    tensors = digest(_pack(centroids, centre, lens))
    manifest = Manifest(FORMAT, "", encoder, clusters, thresholds, made, quality, tensors)
    manifest = msgspec.structs.replace(manifest, id=_id(manifest))
    _check(manifest, centroids, centre, lens)
    return Bundle(manifest, centroids, centre, lens)


def save(bundle: Bundle, directory: Path) -> None:
    """Write the directory beside its place and rename it in: a reader never meets half of one and half of another.

    Raises BundleRefused rather than replace a directory that is not a bundle.
    """
    if directory.exists() and any(directory.iterdir()) and not (directory / MANIFEST).exists():
        raise BundleRefused(f"{directory}: exists and is not a bundle. Choose another directory")
    directory.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=directory.parent, prefix=f".{directory.name}."))
    try:
        new, old = scratch / "new", scratch / "old"
        replace(new / TENSORS, _pack(bundle.centroids, bundle.centre, bundle.lens))
        replace(new / MANIFEST, msgspec.json.format(msgspec.json.encode(bundle.manifest), indent=2) + b"\n")
        if directory.exists():
            directory.rename(old)
        new.rename(directory)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def load(directory: Path = DEFAULT, encoder: Fingerprint | None = None) -> Bundle:
    """Read a bundle and prove it; with *encoder*, also that its vectors belong here.

    Raises BundleRefused, or SpaceMismatch.
    """
    try:
        raw, data = (directory / MANIFEST).read_bytes(), (directory / TENSORS).read_bytes()
    except OSError as exc:
        raise BundleRefused(f"{exc.filename}: {exc.strerror}. A bundle is made by: isogloss fit") from exc
    try:
        bundle = _parse(raw, data)
    except (msgspec.MsgspecError, SafetensorError, UnicodeDecodeError) as exc:
        raise BundleRefused(f"{directory}: {exc}") from exc
    except BundleRefused as exc:
        raise BundleRefused(f"{directory}: {exc}") from exc
    if encoder is not None:
        bundle.require(encoder)
    return bundle


def _parse(raw: bytes, data: bytes) -> Bundle:
    version = msgspec.json.decode(raw, type=dict[str, Any]).get("format")
    if version != FORMAT:
        raise BundleRefused(f"format {version!r}, this program reads {FORMAT}")
    manifest = msgspec.json.decode(raw, type=Manifest)
    if (found := digest(data)) != manifest.tensors:
        raise BundleRefused(f"{TENSORS}: SHA-256 is {found}, the manifest says {manifest.tensors}")
    if (expected := _id(manifest)) != manifest.id:
        raise BundleRefused(f"{MANIFEST}: id is {manifest.id!r}, its content makes {expected!r}: it was edited")
    tensors = tensors_of(data)
    if missing := {"centroids", "centre"} - tensors.keys():
        raise BundleRefused(f"{TENSORS}: no tensor named {min(missing)}")
    if unknown := tensors.keys() - {"centroids", "centre", "lens"}:
        raise BundleRefused(f"{TENSORS}: unknown tensor {min(unknown)}")
    centroids, centre, lens = tensors["centroids"], tensors["centre"], tensors.get("lens")
    _check(manifest, centroids, centre, lens)
    return Bundle(manifest, centroids, centre, lens)


def _check(manifest: Manifest, centroids: Floats, centre: Floats, lens: Floats | None) -> None:
    """What assignment relies on. Raises BundleRefused."""
    if not manifest.clusters:
        raise BundleRefused("no clusters")
    dim = centre.shape[0] if centre.ndim == 1 else 0
    shapes = {"centroids": (len(manifest.clusters), dim), "centre": (dim,), "lens": (dim, dim)}
    for name, tensor in (("centroids", centroids), ("centre", centre), ("lens", lens)):
        if tensor is None:
            continue
        if tensor.dtype != np.float32 or tensor.shape != shapes[name]:
            raise BundleRefused(f"{name}: {tensor.dtype}{tensor.shape}, expected float32{shapes[name]}")
        if not np.isfinite(tensor).all():
            raise BundleRefused(f"{name}: not finite")
    lengths = np.linalg.norm(centroids, axis=1)
    if np.abs(lengths - 1.0).max() > 1e-3:
        raise BundleRefused(f"centroids: lengths {lengths.min():.4f} to {lengths.max():.4f}, expected 1")
    for cluster in manifest.clusters:
        if not NAME.fullmatch(cluster.name):
            raise BundleRefused(f"name {cluster.name!r}: use 1 to 64 of a-z, 0-9, - and _, and not 'unsure'")
    if len({row.tobytes() for row in centroids}) < len(centroids):
        raise BundleRefused("two centroids are equal: their names could not be told apart")


def _pack(centroids: Floats, centre: Floats, lens: Floats | None) -> bytes:
    tensors = {"centroids": centroids, "centre": centre} | ({} if lens is None else {"lens": lens})
    return bytes_of({name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()})


def _id(manifest: Manifest) -> str:
    return digest(msgspec.json.encode(msgspec.structs.replace(manifest, id=""), order="sorted"))[:12]
