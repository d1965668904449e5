"""Every name Isogloss shares with Envoy, clients and pods, once."""

from typing import Final

SESSION: Final = "x-session-id"
CONTEXT: Final = "x-context-version"
HINT: Final = "x-route-hint"
ENDPOINT: Final = "x-gateway-destination-endpoint"
SUBSET: Final = "x-gateway-destination-endpoint-subset"
SERVED: Final = "x-gateway-destination-endpoint-served"
INTENT: Final = "x-isogloss-intent"
POOL: Final = "x-isogloss-pool"
REGION: Final = "x-isogloss-region"
TIER: Final = "x-isogloss-tier"
CONFIDENCE: Final = "x-isogloss-confidence"
BUNDLE: Final = "x-isogloss-bundle"
NOTICE: Final = "x-isogloss-notice"
MODALITY: Final = "x-isogloss-modality"
NODE: Final = "x-isogloss-node"
TRAILERS: Final = "x-isogloss-trailers"
"""Set where a full-duplex body had trailers behind it: the generated routes then retry nothing."""

LB_METADATA: Final = "envoy.lb"
"""The metadata namespace in which Envoy's override_host policy looks for the node."""
SUBSET_METADATA: Final = "envoy.lb.subset_hint"

DECISION_HEADERS: Final = (INTENT, POOL, REGION, TIER, CONFIDENCE, BUNDLE, NOTICE)
"""What a decision says, upstream as request headers and to the client as response headers."""
PEERS: Final = (
    "x-prefiller-host-port",
    "x-encoder-hosts-ports",
    "x-data-parallel-host-port",
    "x-kv-cache-source-host-port",
)
"""Addresses that llm-d's sidecar beside a pod dials when it is told to: no client's to give."""
OURS: Final = (ENDPOINT, SERVED, SUBSET, *DECISION_HEADERS, MODALITY, NODE, TRAILERS, *PEERS)
"""Request headers only we may set: Envoy removes a client's before anything reads them."""

SERVICE: Final = "envoy.service.ext_proc.v3.ExternalProcessor"
METHOD: Final = f"/{SERVICE}/Process"
HEALTH_NAMES: Final = ("", "liveness", "readiness", SERVICE, "inference-extension")

LOCALITY_REGION: Final = "xds.node.locality.region"
LOCALITY_ZONE: Final = "xds.node.locality.zone"
SOURCE_ADDRESS: Final = "source.address"
ATTRIBUTES: Final = (LOCALITY_REGION, LOCALITY_ZONE, SOURCE_ADDRESS)
"""Request attributes the generated Envoy configuration asks for."""
