"""Envoy's access log over gRPC: how each answer ended, on the pod that really gave it.

Envoy sends it a few times a second, long after a request's way through us, so it costs no request anything.
"""

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import grpc
from envoy_data_plane.envoy.service.accesslog.v3 import StreamAccessLogsMessage, StreamAccessLogsResponse
from google.protobuf.message import DecodeError
from msgspec import Struct

from ext_proc import schema
from ext_proc.envoy.common import PODS

METHOD = "/envoy.service.accesslog.v3.AccessLogService/StreamAccessLogs"
_messages = schema.messages(StreamAccessLogsMessage, StreamAccessLogsResponse)
_Message = _messages["StreamAccessLogsMessage"]
_NOTHING = _messages["StreamAccessLogsResponse"]().SerializeToString()
_BROKEN = (
    "upstream_request_timeout", "upstream_remote_reset", "upstream_connection_failure",
    "upstream_connection_termination", "upstream_protocol_error",
)  # fmt: skip
_LEFT = ("downstream_connection_termination", "downstream_remote_reset")

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class Served(Struct, frozen=True):
    """How one request ended at *node*."""

    node: str
    ms: float | None
    """To the first byte of a good answer; None: it was an error, a refusal for load, or the client left."""
    failed: bool
    """By the node's fault."""


class AccessLogs(grpc.GenericRpcHandler):
    """`AccessLogService/StreamAccessLogs` over raw bytes."""

    def __init__(self, hear: Callable[[Served], None], count: Callable[[str], None]) -> None:
        self._hear = hear
        self._count = count

    def service(self, details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[Any, Any] | None":
        return grpc.stream_unary_rpc_method_handler(self._stream) if details.method == METHOD else None

    async def _stream(self, messages: Any, _: Context) -> bytes:
        async for message in messages:
            try:
                for served in read(message):
                    self._hear(served)
            except DecodeError:
                self._count("undecodable-access-log")
        return bytes(_NOTHING)


def read(message: bytes) -> Iterator[Served]:
    """The requests in *message* that reached one of our pods. Raises DecodeError."""
    for entry in _Message.FromString(message).http_logs.log_entry:
        common = entry.common_properties
        where = common.upstream_remote_address.socket_address
        if common.upstream_cluster != PODS or not where.address:
            continue
        host = f"[{where.address}]" if ":" in where.address else where.address
        status, flags = entry.response.response_code.value, common.response_flags
        failed = status >= 500 or status == 429 or any(getattr(flags, flag) for flag in _BROKEN)
        good = 200 <= status < 300 and not failed
        left = any(getattr(flags, flag) for flag in _LEFT)
        ms = None
        if good and not left and common.HasField("time_to_first_upstream_rx_byte"):
            ms = _ms(common.time_to_first_upstream_rx_byte) - _ms(common.time_to_first_upstream_tx_byte)
        yield Served(f"{host}:{where.port_value}", ms, failed and not left)


def _ms(duration: Any) -> float:
    return float(duration.seconds * 1000.0 + duration.nanos / 1e6)
