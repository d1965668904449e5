"""Access logs: to us over gRPC, which is how we learn what came of a decision, and to a file where asked for."""

from pathlib import Path

from envoy_data_plane.envoy.config.accesslog.v3 import AccessLog
from envoy_data_plane.envoy.config.core.v3 import (
    ApiVersion,
    GrpcService,
    GrpcServiceEnvoyGrpc,
    SubstitutionFormatString,
)
from envoy_data_plane.envoy.extensions.access_loggers.file.v3 import FileAccessLog
from envoy_data_plane.envoy.extensions.access_loggers.grpc.v3 import CommonGrpcAccessLogConfig, HttpGrpcAccessLogConfig
from envoy_data_plane.google.protobuf import Any

from ext_proc import names
from ext_proc.envoy.common import WORKERS, seconds, struct

_FLUSH_S = 0.25
_FLUSH_BYTES = 16 * 1024


def to_us() -> AccessLog:
    """A few times a second, whatever was answered meanwhile."""
    common = CommonGrpcAccessLogConfig(
        log_name="isogloss",
        grpc_service=GrpcService(envoy_grpc=GrpcServiceEnvoyGrpc(cluster_name=WORKERS)),
        transport_api_version=ApiVersion.V3,
        buffer_flush_interval=seconds(_FLUSH_S),
        buffer_size_bytes=_FLUSH_BYTES,
    )
    return AccessLog(
        name="envoy.access_loggers.http_grpc", typed_config=Any.pack(HttpGrpcAccessLogConfig(common_config=common))
    )


def to_file(path: Path) -> AccessLog:
    """A JSON line a request."""
    fields = {
        "time": "%START_TIME%",
        "method": "%REQ(:METHOD)%",
        "path": "%PATH(NQ)%",
        "status": "%RESPONSE_CODE%",
        "details": "%RESPONSE_CODE_DETAILS%",
        "flags": "%RESPONSE_FLAGS%",
        "node": "%UPSTREAM_REMOTE_ADDRESS%",
        "chosen": f"%REQ({names.ENDPOINT})%",
        "metadata": f"%DYNAMIC_METADATA({names.LB_METADATA}:{names.ENDPOINT})%",
        "intent": f"%REQ({names.INTENT})%",
        "pool": f"%REQ({names.POOL})%",
        "tier": f"%REQ({names.TIER})%",
        "client": "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%",
        "request_id": "%REQ(X-REQUEST-ID)%",
        "received": "%BYTES_RECEIVED%",
        "sent": "%BYTES_SENT%",
        "milliseconds": "%DURATION%",
    }
    log_format = SubstitutionFormatString(json_format=struct(fields))
    return AccessLog(
        name="envoy.access_loggers.file",
        typed_config=Any.pack(FileAccessLog(path=str(path), log_format=log_format)),
    )
