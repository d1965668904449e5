"""A gateway's subset hint with a real Envoy whose own filters, before ours, set it."""

import pytest

from ext_proc import names
from tests.e2e.load import BODY
from tests.e2e.world import MODES, Json, World

CHAT = "/v1/chat/completions"
BY_HEADER, LIST, EMPTY = "x-test-subset", "x-test-list", "x-test-empty"


def _filter(name: str, kind: str, **settings: object) -> Json:
    typed = {"@type": f"type.googleapis.com/envoy.extensions.filters.http.{kind}.v3.Config", **settings}
    return {"name": name, "typed_config": typed}


def _list(header: str, addresses: list[str]) -> Json:
    """A list in the metadata, on routes that switch it on."""
    value = {"metadata_namespace": names.SUBSET_METADATA, "value": {names.SUBSET: addresses}}
    return _filter(header, "set_metadata", metadata=[value]) | {"disabled": True}


def hinting(tree: Json) -> None:
    """One gateway that turns a header into a string, a list with the second pod in it, or an empty list."""
    manager = tree["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
    hosts = tree["static_resources"]["clusters"][0]["load_assignment"]["endpoints"][1]["lb_endpoints"]
    second = "{address}:{port_value}".format(**hosts[0]["endpoint"]["address"]["socket_address"])
    text = {"metadata_namespace": names.SUBSET_METADATA, "key": names.SUBSET, "type": "STRING"}
    manager["http_filters"] = [
        _filter(BY_HEADER, "header_to_metadata", request_rules=[{"header": BY_HEADER, "on_header_present": text}]),
        _list(LIST, [second, "10.9.9.9:1"]),
        _list(EMPTY, []),
        *manager["http_filters"],
    ]
    host = manager["route_config"]["virtual_hosts"][0]
    host["routes"] = [_switched_on(route, header) for header in (LIST, EMPTY) for route in host["routes"]] + host[
        "routes"
    ]


def _switched_on(route: Json, header: str) -> Json:
    """The same route for requests with *header*, and the filter of that name at work."""
    there = [*route["match"].get("headers", []), {"name": header, "present_match": True}]
    on = {"@type": "type.googleapis.com/envoy.config.route.v3.FilterConfig", "config": {}}
    name, match = f"{route['name']}-{header}", {**route["match"], "headers": there}
    return {**route, "name": name, "match": match, "typed_per_filter_config": {header: on}}


@pytest.fixture(params=MODES)
def gateway(request: pytest.FixtureRequest, new_world) -> World:
    return new_world(request.param, bend=hinting)


def test_a_gateways_hint_is_what_may_answer(gateway: World) -> None:
    first, second, third = (pod.address for pod in gateway.pods)
    with gateway.client() as client:

        def nodes(**headers: str) -> set[str | int]:
            answers = [client.post(CHAT, json=BODY, headers=headers) for _ in range(6)]
            return {a.headers[names.NODE] if a.status_code == 200 else a.status_code for a in answers}

        assert nodes() == {first, second, third}
        assert nodes(**{BY_HEADER: third}) == {third}
        assert nodes(**{BY_HEADER: f"{third}, {first}, 10.9.9.9:1"}) == {first, third}
        assert nodes(**{BY_HEADER: "127.0.0.1"}) == {first, second, third}
        assert nodes(**{BY_HEADER: "10.9.9.9:8000"}) == {503}
        assert nodes(**{BY_HEADER: ",,"}) == {503}
        assert nodes(**{LIST: "1"}) == {second}
        assert nodes(**{EMPTY: "1"}) == {503}
        assert nodes(**{LIST: "1", names.SUBSET: first}) == {second}
        assert nodes(**{names.SUBSET: first}) == {first, second, third}  # a client's word
        refused = client.post(CHAT, json=BODY, headers={EMPTY: "1"})
    assert refused.json()["error"]["message"] == "No node of the given subset is available."
    assert refused.headers["retry-after"]
