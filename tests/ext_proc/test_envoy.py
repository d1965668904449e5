"""The generated Envoy configuration: Envoy takes it, and it says what the rest of Isogloss relies on."""

from typing import Any

import pytest
import yaml

from ext_proc import envoy, names
from ext_proc.config import parse
from ext_proc.errors import ConfigError

NODES = """
fleet:
  nodes:
    - {address: "10.0.0.1:8000", region: us-east, zone: us-east-1a}
    - {address: "10.0.0.2:8000", region: us-east, zone: us-east-1a}
    - {address: "[2001:db8::1]:8000", region: eu-west}
"""
MODES = ("headers", "buffered", "duplex")


def rendered(text: str = "") -> dict[str, Any]:
    """The bootstrap for *text* and three nodes."""
    tree: dict[str, Any] = yaml.safe_load(envoy.render(parse((NODES + text).encode())))
    return tree


def manager(tree: dict[str, Any]) -> dict[str, Any]:
    """The HTTP connection manager."""
    found: dict[str, Any] = tree["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
    return found


def cluster(tree: dict[str, Any], name: str) -> dict[str, Any]:
    """A cluster by name."""
    return next(found for found in tree["static_resources"]["clusters"] if found["name"] == name)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "more", ["", "sessions: {cookie: iso}", "server: {host: isogloss.default.svc, workers: 4, health_port: 9010}"]
)
def test_envoy_takes_what_we_write(mode: str, more: str) -> None:
    envoy.validate(yaml.safe_dump(rendered(f"envoy: {{mode: {mode}}}\n{more}")))


def test_with_a_residency_rule_envoy_chooses_nobody_by_itself() -> None:
    """Tried with a real one in tests/e2e/test_residency.py."""
    tree = rendered("rules: {residency: [{stay: [EU]}]}")
    envoy.validate(yaml.safe_dump(tree))

    def fallback(of: dict[str, Any]) -> str:
        (policy,) = cluster(of, "pods")["load_balancing_policy"]["policies"]
        (otherwise,) = policy["typed_extension_config"]["typed_config"]["fallback_policy"]["policies"]
        return str(otherwise["typed_extension_config"]["name"]).rpartition(".")[2]

    assert (fallback(tree), fallback(rendered())) == ("subset", "least_request")


def test_envoy_takes_a_fleet_that_is_still_empty() -> None:
    envoy.validate(envoy.render(parse(b"")))


def test_what_envoy_refuses_is_said_in_its_words() -> None:
    tree = rendered("envoy: {mode: duplex}")
    filter_ = manager(tree)["http_filters"][0]["typed_config"]
    filter_["processing_mode"]["request_trailer_mode"] = "SKIP"  # duplex needs trailers
    with pytest.raises(ConfigError, match="FULL_DUPLEX_STREAMED"):
        envoy.validate(yaml.safe_dump(tree))


def test_an_unknown_key_is_refused() -> None:
    with pytest.raises(ConfigError, match="no such field: 'listners'"):
        envoy.validate("static_resources: {listners: []}")


def test_one_limit_gives_envoys_buffer() -> None:
    tree = rendered("server: {limits: {body_bytes: 1048576}}")
    assert tree["static_resources"]["listeners"][0]["per_connection_buffer_limit_bytes"] == 1048576


def test_every_header_of_ours_is_taken_from_clients_before_any_filter() -> None:
    (extension,) = manager(rendered())["early_header_mutation_extensions"]
    assert [change["remove"] for change in extension["typed_config"]["mutations"]] == list(names.OURS)


@pytest.mark.parametrize("mode", MODES)
def test_responses_are_never_asked_for(mode: str) -> None:
    (asking, _) = manager(rendered(f"envoy: {{mode: {mode}}}"))["http_filters"]
    modes = asking["typed_config"]["processing_mode"]
    assert (modes["response_header_mode"], modes["response_trailer_mode"]) == ("SKIP", "SKIP")
    assert "response_body_mode" not in modes


def test_every_worker_is_an_endpoint_that_is_asked_for_its_health() -> None:
    workers = cluster(rendered("server: {workers: 3, port: 9100}"), "isogloss")
    (group,) = workers["load_assignment"]["endpoints"]
    ports = [found["endpoint"]["address"]["socket_address"]["port_value"] for found in group["lb_endpoints"]]
    assert ports == [9100, 9101, 9102]
    (check,) = workers["health_checks"]
    assert check["grpc_health_check"]["service_name"] == names.SERVICE
    assert workers["common_lb_config"] == {"healthy_panic_threshold": {}, "update_merge_window": "0s"}


def test_nodes_stand_in_their_localities() -> None:
    groups = cluster(rendered(), "pods")["load_assignment"]["endpoints"]
    assert [(group["locality"], len(group["lb_endpoints"])) for group in groups] == [
        ({"region": "us-east", "zone": "us-east-1a"}, 2),
        ({"region": "eu-west"}, 1),
    ]


def test_the_node_is_looked_for_in_the_metadata_and_then_in_the_header() -> None:
    (policy,) = cluster(rendered(), "pods")["load_balancing_policy"]["policies"]
    assert policy["typed_extension_config"]["typed_config"]["override_host_sources"] == [
        {"metadata": {"key": names.LB_METADATA, "path": [{"key": names.ENDPOINT}]}},
        {"header": names.ENDPOINT},
    ]


@pytest.mark.parametrize("address", ["pod-1:8000", "10.0.0.1", "10.0.0.1:0", "2001:db8::1:8000", "10.0.0.1:99999"])
def test_an_address_envoy_could_not_dial_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match=r"fleet\.nodes\.address"):
        envoy.render(parse(yaml.safe_dump({"fleet": {"nodes": [{"address": address}]}}).encode()))


def test_an_address_spelled_otherwise_than_envoy_spells_it_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"write '\[2001:db8::1\]:8000'"):
        envoy.render(parse(yaml.safe_dump({"fleet": {"nodes": [{"address": "[2001:DB8:0::1]:8000"}]}}).encode()))


def test_a_session_id_cannot_break_out_of_its_cookie() -> None:
    first = manager(rendered("sessions: {cookie: iso}"))["route_config"]["virtual_hosts"][0]["routes"][0]
    (matched,) = first["match"]["headers"]
    assert matched["string_match"] == {"safe_regex": {"regex": "[A-Za-z0-9._~-]+"}}


def test_each_worker_has_a_socket_of_its_own() -> None:
    (group,) = cluster(rendered("server: {socket: /run/iso.sock, workers: 2}"), "isogloss")["load_assignment"][
        "endpoints"
    ]
    assert [found["endpoint"]["address"] for found in group["lb_endpoints"]] == [
        {"pipe": {"path": "/run/iso.sock"}},
        {"pipe": {"path": "/run/iso.sock.1"}},
    ]


TLS = "server: {host: isogloss.mesh, tls: {certificate: a.pem, key: a.key%s}}\n"


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        (TLS % "", r"envoy\.tls\.ca"),
        (TLS % ", client_ca: ca.pem" + "envoy: {tls: {ca: ca.pem}}", r"envoy\.tls\.certificate"),
    ],
)
def test_envoy_is_never_left_to_guess_at_tls(text: str, missing: str) -> None:
    with pytest.raises(ConfigError, match=missing):
        rendered(text)


def test_envoy_believes_our_ca_and_our_name_only() -> None:
    context = cluster(rendered(TLS % "" + "envoy: {tls: {ca: /etc/ca.pem}}"), "isogloss")["transport_socket"]
    common = context["typed_config"]["common_tls_context"]
    assert context["typed_config"]["sni"] == "isogloss.mesh"
    assert common["alpn_protocols"] == ["h2"]
    assert common["validation_context"] == {
        "trusted_ca": {"filename": "/etc/ca.pem"},
        "match_typed_subject_alt_names": [{"san_type": "DNS", "matcher": {"exact": "isogloss.mesh"}}],
    }
