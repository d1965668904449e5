"""The Envoy configuration that goes with an isogloss.yaml: written with Envoy's own types, checked by Envoy itself."""

from ext_proc.envoy.binary import binary, validate
from ext_proc.envoy.bootstrap import bootstrap, render

__all__ = ["binary", "bootstrap", "render", "validate"]
