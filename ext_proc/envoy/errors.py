"""Envoy's own refusals in OpenAI's error shape, so that a client's SDK can read them."""

from typing import NamedTuple

from envoy_data_plane.envoy.config.accesslog.v3 import (
    AccessLogFilter,
    AndFilter,
    ComparisonFilter,
    ComparisonFilterOp,
    ExtensionFilter,
    StatusCodeFilter,
)
from envoy_data_plane.envoy.config.core.v3 import RuntimeUInt32, SubstitutionFormatString
from envoy_data_plane.envoy.extensions.access_loggers.filters.cel.v3 import ExpressionFilter
from envoy_data_plane.envoy.extensions.filters.network.http_connection_manager.v3 import (
    LocalReplyConfig,
    ResponseMapper,
)
from envoy_data_plane.google.protobuf import Any

from ext_proc.envoy.common import overwrite, struct

# Our own refusals are local replies to Envoy too, and come with their type: those stay as they are.
_ENVOYS_OWN = "!('content-type' in response.headers) || response.headers['content-type'] == 'text/plain'"


class _Error(NamedTuple):
    op: ComparisonFilterOp
    status: int
    kind: str
    message: str


def openai_errors(body_bytes: int) -> LocalReplyConfig:
    """First match wins; an upstream's answer is never a local reply."""
    equal, from_ = ComparisonFilterOp.EQ, ComparisonFilterOp.GE
    table = (
        _Error(equal, 413, "PayloadTooLargeError", f"The request body is over the limit of {body_bytes} bytes."),
        _Error(equal, 408, "RequestTimeoutError", "The request did not arrive in time."),
        _Error(equal, 503, "ServiceUnavailableError", "No pod could be reached. %LOCAL_REPLY_BODY%"),
        _Error(equal, 504, "GatewayTimeoutError", "The pod did not answer in time."),
        _Error(from_, 500, "InternalServerError", "%LOCAL_REPLY_BODY%"),
        _Error(from_, 400, "BadRequestError", "%LOCAL_REPLY_BODY%"),
    )
    return LocalReplyConfig(mappers=[_mapper(error) for error in table])


def _mapper(error: _Error) -> ResponseMapper:
    return ResponseMapper(
        filter=AccessLogFilter(and_filter=AndFilter(filters=[_status(error), _envoys_own()])),
        body_format_override=SubstitutionFormatString(
            content_type="application/json",
            json_format=struct(
                {
                    "error": {
                        "message": error.message,
                        "type": error.kind,
                        "param": None,
                        "code": "%RESPONSE_CODE%",
                    }
                }
            ),
        ),
        headers_to_add=[overwrite("retry-after", "1")] if error.status == 503 else [],
    )


def _status(error: _Error) -> AccessLogFilter:
    value = RuntimeUInt32(default_value=error.status, runtime_key=f"isogloss.local_reply.{error.status}")
    return AccessLogFilter(status_code_filter=StatusCodeFilter(comparison=ComparisonFilter(op=error.op, value=value)))


def _envoys_own() -> AccessLogFilter:
    return AccessLogFilter(
        extension_filter=ExtensionFilter(
            name="envoy.access_loggers.extension_filters.cel",
            typed_config=Any.pack(ExpressionFilter(expression=_ENVOYS_OWN)),
        )
    )
