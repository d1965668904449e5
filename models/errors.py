"""What can go wrong with an artefact, each by its name."""


class ModelError(Exception):
    """An artefact or its input is not what it has to be. The text names the thing, and the way out."""


class WeightsMissing(ModelError):
    """No encoder weights where they were looked for."""


class WeightsRefused(ModelError):
    """A file of the encoder is not the one that is pinned, or cannot be used."""


class GraphRefused(ModelError):
    """The ONNX graph could not be built, or does not match its manifest after a build."""


class BackendMissing(ModelError):
    """The chosen backend needs a package that is not installed."""


class BundleRefused(ModelError):
    """A bundle is damaged, incomplete or unsafe."""


class SpaceMismatch(BundleRefused):
    """The bundle's centroids lie in another vector space than the encoder's vectors."""


class BadLine(ModelError):
    """A line of a JSONL file cannot be used. The text names file, line and fix."""


class FitRefused(ModelError):
    """What was given cannot be made into a bundle. The text says what is missing."""
