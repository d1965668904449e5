"""What Envoy's access log says of a pod."""

import datetime

import pytest
from envoy_data_plane.envoy.config.core.v3 import Address, SocketAddress
from envoy_data_plane.envoy.data.accesslog.v3 import (
    AccessLogCommon,
    HttpAccessLogEntry,
    HttpResponseProperties,
    ResponseFlags,
)
from envoy_data_plane.envoy.service.accesslog.v3 import (
    StreamAccessLogsMessage,
    StreamAccessLogsMessageHttpAccessLogEntries,
)
from google.protobuf.message import DecodeError

from ext_proc.accesslog import Served, read
from ext_proc.envoy.common import PODS


def entry(
    status: int = 200, *, host: str = "10.0.0.1", cluster: str = PODS, ms: float | None = 120.0, **flags: bool
) -> HttpAccessLogEntry:
    """A request that went out after 30 ms."""
    common = AccessLogCommon(
        upstream_cluster=cluster,
        upstream_remote_address=Address(socket_address=SocketAddress(address=host, port_value=8000)),
        time_to_first_upstream_tx_byte=datetime.timedelta(milliseconds=30),
        response_flags=ResponseFlags(**flags),
    )
    if ms is not None:
        common.time_to_first_upstream_rx_byte = datetime.timedelta(milliseconds=30 + ms)
    return HttpAccessLogEntry(
        common_properties=common, response=HttpResponseProperties(response_code=status if status else None)
    )


def heard(*entries: HttpAccessLogEntry) -> list[Served]:
    logs = StreamAccessLogsMessageHttpAccessLogEntries(log_entry=list(entries))
    return list(read(bytes(StreamAccessLogsMessage(http_logs=logs))))


def test_a_good_answer_is_timed_from_the_pods_own_request_to_its_first_byte():
    assert heard(entry()) == [Served("10.0.0.1:8000", 120.0, False)]


def test_the_pod_is_named_as_the_fleet_names_it():
    assert heard(entry(host="fd00::1"))[0].node == "[fd00::1]:8000"


@pytest.mark.parametrize("status", [429, 500, 503, 504])
def test_errors_and_refusals_for_load_are_the_pods_fault_and_never_fast(status):
    assert heard(entry(status, ms=0.01)) == [Served("10.0.0.1:8000", None, True)]


@pytest.mark.parametrize("flag", ["upstream_remote_reset", "upstream_connection_failure", "upstream_request_timeout"])
def test_a_connection_that_breaks_is_the_pods_fault(flag):
    assert heard(entry(0, ms=None, **{flag: True})) == [Served("10.0.0.1:8000", None, True)]
    assert heard(entry(200, **{flag: True})) == [Served("10.0.0.1:8000", None, True)]


@pytest.mark.parametrize("status", [400, 404, 422])
def test_a_clients_mistake_says_nothing_of_the_pod(status):
    assert heard(entry(status, ms=1.0)) == [Served("10.0.0.1:8000", None, False)]


def test_a_client_that_left_says_nothing_of_the_pod():
    assert heard(entry(200, downstream_connection_termination=True)) == [Served("10.0.0.1:8000", None, False)]
    assert heard(entry(0, ms=None, downstream_remote_reset=True, upstream_remote_reset=True))[0].failed is False


def test_what_never_reached_a_pod_is_nobodys():
    assert heard(entry(cluster="other"), entry(host="")) == []
    assert list(read(b"")) == []


def test_noise_is_a_decode_error():
    with pytest.raises(DecodeError):
        list(read(b"\x12\xff"))
