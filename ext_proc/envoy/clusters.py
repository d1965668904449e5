"""The two clusters: the pods, among which we choose, and our own workers, whom Envoy asks."""

import ipaddress
from collections.abc import Iterable

from envoy_data_plane.envoy.config.cluster.v3 import (
    CircuitBreakers,
    CircuitBreakersThresholds,
    Cluster,
    ClusterCommonLbConfig,
    ClusterDiscoveryType,
    LoadBalancingPolicy,
    LoadBalancingPolicyPolicy,
    OutlierDetection,
)
from envoy_data_plane.envoy.config.core.v3 import (
    HealthCheck,
    HealthCheckGrpcHealthCheck,
    Http1ProtocolOptions,
    Http2ProtocolOptions,
    KeepaliveSettings,
    Locality,
)
from envoy_data_plane.envoy.config.core.v3 import HttpProtocolOptions as CommonHttp
from envoy_data_plane.envoy.config.endpoint.v3 import (
    ClusterLoadAssignment,
    Endpoint,
    LbEndpoint,
    LocalityLbEndpoints,
)
from envoy_data_plane.envoy.extensions.load_balancing_policies.least_request.v3 import LeastRequest
from envoy_data_plane.envoy.extensions.load_balancing_policies.override_host.v3 import (
    OverrideHost,
    OverrideHostOverrideHostSource,
)
from envoy_data_plane.envoy.extensions.load_balancing_policies.round_robin.v3 import RoundRobin
from envoy_data_plane.envoy.extensions.load_balancing_policies.subset.v3 import (
    Subset,
    SubsetLbSubsetFallbackPolicy,
)
from envoy_data_plane.envoy.extensions.upstreams.http.v3 import (
    HttpProtocolOptions,
    HttpProtocolOptionsExplicitHttpConfig,
)
from envoy_data_plane.envoy.type.metadata.v3 import MetadataKey, MetadataKeyPathSegment
from envoy_data_plane.envoy.type.v3 import Percent
from envoy_data_plane.google.protobuf import Any

from ext_proc import names
from ext_proc.config import Config
from ext_proc.envoy import tls
from ext_proc.envoy.common import NEVER, PODS, WORKERS, address, extension, is_ip, pipe, seconds
from ext_proc.errors import ConfigError
from policy.types import Node

_OPTIONS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
_UNLIMITED = 1_000_000
"""Envoy's own limit of 1024 requests a cluster would cut off a fleet; how much a pod may take is policy's to say."""


def pods(nodes: Iterable[Node], *, only_chosen: bool = False) -> Cluster:
    """Every node, chosen by our header or metadata; when nobody chose the least busy one, or with *only_chosen* none.

    Raises ConfigError for an address Envoy could not dial as it stands.
    """
    places: dict[tuple[str, str], list[LbEndpoint]] = {}
    for node in nodes:
        places.setdefault((node.region or "", node.zone or ""), []).append(_endpoint(node.address))
    return Cluster(
        name=PODS,
        type=ClusterDiscoveryType.STATIC,
        connect_timeout=seconds(1),
        load_assignment=ClusterLoadAssignment(
            cluster_name=PODS,
            endpoints=[
                LocalityLbEndpoints(locality=Locality(region=region, zone=zone), lb_endpoints=endpoints)
                for (region, zone), endpoints in places.items()
            ],
        ),
        load_balancing_policy=_policy(
            "envoy.load_balancing_policies.override_host", _override_host(_nobody() if only_chosen else _least_busy())
        ),
        # A pod is put aside only when it cannot be reached. Answers, 5xx too, are for the policy to judge:
        # ejecting on them would let one client's bad requests move everybody's sessions.
        outlier_detection=OutlierDetection(
            split_external_local_origin_errors=True,
            consecutive_local_origin_failure=2,
            enforcing_consecutive_local_origin_failure=100,
            enforcing_consecutive_5xx=0,
            enforcing_consecutive_gateway_failure=0,
            enforcing_success_rate=0,
            enforcing_local_origin_success_rate=0,
            interval=seconds(1),
            base_ejection_time=seconds(2),
            max_ejection_time=seconds(30),
            max_ejection_percent=100,
        ),
        circuit_breakers=_no_limit(),
        typed_extension_protocol_options={
            _OPTIONS: Any.pack(
                HttpProtocolOptions(
                    # vLLM (uvicorn) closes an idle connection after 5 s. Be first, or a POST meets the close.
                    common_http_protocol_options=CommonHttp(idle_timeout=seconds(4)),
                    explicit_http_config=HttpProtocolOptionsExplicitHttpConfig(
                        http_protocol_options=Http1ProtocolOptions(enable_trailers=True)
                    ),
                )
            )
        },
    )


def workers(config: Config) -> Cluster:
    """Our worker processes. A dead one is out within a health check; with none left Envoy goes on without us.

    Raises ConfigError where Envoy is not told how to speak TLS with them.
    """
    server = config.server
    host = _reachable(server.host)
    places = (
        [pipe(server.socket_of(worker)) for worker in range(server.workers)]
        if server.socket is not None
        else [address(host, port) for port in server.ports()["port"]]
    )
    return Cluster(
        name=WORKERS,
        type=ClusterDiscoveryType.STATIC if server.socket or is_ip(host) else ClusterDiscoveryType.STRICT_DNS,
        connect_timeout=seconds(0.25),
        load_assignment=ClusterLoadAssignment(
            cluster_name=WORKERS,
            endpoints=[
                LocalityLbEndpoints(lb_endpoints=[LbEndpoint(endpoint=Endpoint(address=place)) for place in places])
            ],
        ),
        load_balancing_policy=_policy("envoy.load_balancing_policies.round_robin", RoundRobin()),
        # With the panic threshold at its default of 50 % Envoy would go on asking the dead, and with its default
        # merge window its threads would hear a second late that a worker is gone or back.
        common_lb_config=ClusterCommonLbConfig(healthy_panic_threshold=Percent(value=0), update_merge_window=NEVER),
        health_checks=[_asks_for_serving()],
        # Quicker than the health check, and never longer than it takes the check to have the last word.
        outlier_detection=OutlierDetection(
            consecutive_5xx=3,
            enforcing_consecutive_5xx=100,
            enforcing_success_rate=0,
            interval=seconds(0.25),
            base_ejection_time=seconds(0.5),
            max_ejection_time=seconds(0.5),
            max_ejection_percent=100,
            successful_active_health_check_uneject_host=True,
        ),
        circuit_breakers=_no_limit(),
        transport_socket=tls.socket(config, host),
        typed_extension_protocol_options={
            _OPTIONS: Any.pack(
                HttpProtocolOptions(
                    explicit_http_config=HttpProtocolOptionsExplicitHttpConfig(
                        # In duplex Envoy has no time-out of its own for our answer: a worker that hangs (stopped, or
                        # its machine gone) would hold its requests for an hour. Its connection says so within seconds.
                        http2_protocol_options=Http2ProtocolOptions(
                            connection_keepalive=KeepaliveSettings(interval=seconds(1), timeout=seconds(2))
                        )
                    )
                )
            )
        },
    )


def _asks_for_serving() -> HealthCheck:
    """Twice a second, also without traffic: Envoy's pause of 60 s there would keep a dead worker for a minute."""
    often = seconds(0.5)
    return HealthCheck(
        timeout=seconds(1),
        interval=often,
        no_traffic_interval=often,
        no_traffic_healthy_interval=often,
        unhealthy_interval=often,
        unhealthy_threshold=1,
        healthy_threshold=1,
        grpc_health_check=HealthCheckGrpcHealthCheck(service_name=names.SERVICE),
    )


def _override_host(otherwise: LoadBalancingPolicy) -> OverrideHost:
    chosen = MetadataKey(key=names.LB_METADATA, path=[MetadataKeyPathSegment(key=names.ENDPOINT)])
    return OverrideHost(
        override_host_sources=[
            OverrideHostOverrideHostSource(metadata=chosen),
            OverrideHostOverrideHostSource(header=names.ENDPOINT),
        ],
        fallback_policy=otherwise,
    )


def _least_busy() -> LoadBalancingPolicy:
    return _policy("envoy.load_balancing_policies.least_request", LeastRequest())


def _nobody() -> LoadBalancingPolicy:
    """Data residency: Envoy cannot know where a request may go, so it must not choose, neither while we are down nor
    on a retry. A subset nothing matches, without a fallback, is its way of saying so: 503."""
    none = Subset(fallback_policy=SubsetLbSubsetFallbackPolicy.NO_FALLBACK, subset_lb_policy=_least_busy())
    return _policy("envoy.load_balancing_policies.subset", none)


def _policy(name: str, config: OverrideHost | LeastRequest | RoundRobin | Subset) -> LoadBalancingPolicy:
    return LoadBalancingPolicy(policies=[LoadBalancingPolicyPolicy(typed_extension_config=extension(name, config))])


def _no_limit() -> CircuitBreakers:
    return CircuitBreakers(
        thresholds=[
            CircuitBreakersThresholds(
                max_connections=_UNLIMITED,
                max_pending_requests=_UNLIMITED,
                max_requests=_UNLIMITED,
                max_retries=_UNLIMITED,
            )
        ]
    )


def _endpoint(where: str) -> LbEndpoint:
    host, _, port = where.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    # One spelling an address: Envoy finds a node by the bytes, and it writes addresses in the shortest form.
    if not is_ip(bare) or not port.isdigit() or not 0 < int(port) < 65536:
        raise ConfigError(f"fleet.nodes.address: {where!r} is not ip:port (IPv6 in brackets)")
    ip = ipaddress.ip_address(bare)
    shortest = f"[{ip}]:{int(port)}" if ip.version == 6 else f"{ip}:{int(port)}"
    if where != shortest:
        raise ConfigError(f"fleet.nodes.address: write {shortest!r}, not {where!r}: Envoy knows it by those bytes")
    return LbEndpoint(endpoint=Endpoint(address=address(bare, int(port))))


def _reachable(host: str) -> str:
    """Where Envoy, on the same machine, finds a server that listens on *host*."""
    return {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1", "[::]": "::1"}.get(host, host.strip("[]"))  # noqa: S104
