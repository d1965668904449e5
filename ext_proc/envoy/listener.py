"""The listener: what Envoy does with a request before and after it asks us."""

from pathlib import Path

from envoy_data_plane.envoy.config.common.mutation_rules.v3 import HeaderMutation as Mutation
from envoy_data_plane.envoy.config.core.v3 import CidrRange, Http1ProtocolOptions
from envoy_data_plane.envoy.config.core.v3 import HttpProtocolOptions as CommonHttp
from envoy_data_plane.envoy.config.listener.v3 import Filter, FilterChain, Listener
from envoy_data_plane.envoy.extensions.filters.http.router.v3 import Router
from envoy_data_plane.envoy.extensions.filters.network.http_connection_manager.v3 import (
    HttpConnectionManager,
    HttpConnectionManagerCodecType,
    HttpConnectionManagerInternalAddressConfig,
    HttpConnectionManagerServerHeaderTransformation,
    HttpConnectionManagerUpgradeConfig,
    HttpFilter,
)
from envoy_data_plane.envoy.extensions.http.early_header_mutation.header_mutation.v3 import HeaderMutation
from envoy_data_plane.google.protobuf import Any

from ext_proc import names
from ext_proc.config import Config
from ext_proc.envoy import access
from ext_proc.envoy.asking import asking
from ext_proc.envoy.common import address, extension, seconds
from ext_proc.envoy.errors import openai_errors
from ext_proc.envoy.routes import routes
from ext_proc.protocol import MAX_HEADER_BYTES, MAX_HEADERS

_LONG = seconds(3600)
"""Idle time of a stream: a queued prompt, or a model that thinks, may be silent for long."""


_ROOM = 28
"""Header lines, and _ROOM_KB kilobytes of them, for what we and Envoy add to the most a client may send."""
_ROOM_KB = 4


def listener(config: Config, access_log: Path | None = None) -> Listener:
    """One port for HTTP/1.1 and h2c clients."""
    return Listener(
        name="requests",
        address=address(config.envoy.host, config.envoy.port),
        # What a filter may buffer: a body of exactly the limit passes, one byte more is a 413.
        per_connection_buffer_limit_bytes=config.server.limits.body_bytes,
        filter_chains=[
            FilterChain(
                filters=[
                    Filter(
                        name="envoy.filters.network.http_connection_manager",
                        typed_config=Any.pack(_connections(config, access_log)),
                    )
                ]
            )
        ],
    )


def _connections(config: Config, access_log: Path | None) -> HttpConnectionManager:
    return HttpConnectionManager(
        stat_prefix="requests",
        codec_type=HttpConnectionManagerCodecType.AUTO,
        route_config=routes(config),
        http_filters=[
            HttpFilter(name="envoy.filters.http.ext_proc", typed_config=Any.pack(asking(config))),
            HttpFilter(name="envoy.filters.http.router", typed_config=Any.pack(Router(suppress_envoy_headers=True))),
        ],
        early_header_mutation_extensions=[
            extension("envoy.http.early_header_mutation.header_mutation", _ours_removed())
        ],
        local_reply_config=openai_errors(config.server.limits.body_bytes),
        access_log=[access.to_us(), *([access.to_file(access_log)] if access_log else [])],
        use_remote_address=True,
        xff_num_trusted_hops=config.places.trusted_hops,
        # No address is internal: x-envoy-* from a client steers nothing, wherever the client is. The list is not empty
        # because Envoy would take its own for that: all private networks.
        internal_address_config=HttpConnectionManagerInternalAddressConfig(
            cidr_ranges=[CidrRange(address_prefix="255.255.255.255", prefix_len=32)]
        ),
        common_http_protocol_options=CommonHttp(max_headers_count=MAX_HEADERS + _ROOM),
        max_request_headers_kb=MAX_HEADER_BYTES // 1024 + _ROOM_KB,
        preserve_external_request_id=True,
        server_header_transformation=HttpConnectionManagerServerHeaderTransformation.PASS_THROUGH,
        http_protocol_options=Http1ProtocolOptions(enable_trailers=True),
        upgrade_configs=[HttpConnectionManagerUpgradeConfig(upgrade_type="websocket")],
        normalize_path=True,
        stream_idle_timeout=_LONG,
        request_headers_timeout=seconds(30),
        request_timeout=seconds(config.server.limits.upload_total_s),
    )


def _ours_removed() -> HeaderMutation:
    """Runs before any filter and needs nobody's answer, so it holds also while our service is down."""
    return HeaderMutation(mutations=[Mutation(remove=name) for name in names.OURS])
