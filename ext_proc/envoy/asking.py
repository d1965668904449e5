"""The ext_proc filter: what Envoy shows us of a request, how long it waits, and what it believes."""

from typing import Final

from envoy_data_plane.envoy.config.core.v3 import GrpcService, GrpcServiceEnvoyGrpc
from envoy_data_plane.envoy.extensions.filters.http.ext_proc.v3 import (
    ExternalProcessor,
    MetadataOptions,
    MetadataOptionsMetadataNamespaces,
    ProcessingMode,
    ProcessingModeBodySendMode,
    ProcessingModeHeaderSendMode,
)
from envoy_data_plane.envoy.type.v3 import HttpStatus, StatusCode

from ext_proc import names
from ext_proc.config import Config, Mode
from ext_proc.envoy.common import WORKERS, seconds

_SEND: Final = ProcessingModeHeaderSendMode.SEND
_SKIP: Final = ProcessingModeHeaderSendMode.SKIP
_BODY: Final = {
    "headers": ProcessingModeBodySendMode.NONE,
    "buffered": ProcessingModeBodySendMode.BUFFERED,
    "duplex": ProcessingModeBodySendMode.FULL_DUPLEX_STREAMED,
}


def asking(config: Config) -> ExternalProcessor:
    """Ask our workers; go on without them when they do not answer."""
    return ExternalProcessor(
        grpc_service=GrpcService(envoy_grpc=GrpcServiceEnvoyGrpc(cluster_name=WORKERS)),
        stat_prefix=WORKERS,
        failure_mode_allow=True,
        # Duplex cannot go on once a piece of the body was sent to us: an honest, retryable 503 instead of a 500.
        status_on_error=HttpStatus(code=StatusCode.ServiceUnavailable),
        processing_mode=_mode(config.envoy.mode),
        message_timeout=seconds(config.envoy.message_timeout_ms / 1000),
        # A body nobody reads stays with Envoy: that one override and no other.
        allow_mode_override=True,
        allowed_override_modes=[_mode("headers")],
        request_attributes=list(names.ATTRIBUTES),
        metadata_options=MetadataOptions(
            receiving_namespaces=_untyped(names.LB_METADATA),
            forwarding_namespaces=_untyped(names.LB_METADATA, names.SUBSET_METADATA),
        ),
    )


def _mode(mode: Mode) -> ProcessingMode:
    """Responses pass us by: the client learns the decision from the route's own response headers.

    Envoy asks for response headers unless told not to, and a message costs as much there as on the way in.
    """
    return ProcessingMode(
        request_header_mode=_SEND,
        request_body_mode=_BODY[mode],
        request_trailer_mode=_SEND if mode == "duplex" else _SKIP,
        response_header_mode=_SKIP,
        response_body_mode=ProcessingModeBodySendMode.NONE,
        response_trailer_mode=_SKIP,
    )


def _untyped(*namespaces: str) -> MetadataOptionsMetadataNamespaces:
    return MetadataOptionsMetadataNamespaces(untyped=list(namespaces))
