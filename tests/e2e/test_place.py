"""Whose address counts, with a real Envoy: never one a client wrote where no proxy of ours stands."""

import ipaddress

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from ext_proc import names
from tests.e2e.load import BODY
from tests.e2e.world import World

CHAT = "/v1/chat/completions"
FRANCE, AMERICA, JAPAN = "129.132.1.1", "128.112.1.1", "130.69.1.1"
NEAREST = {FRANCE: "eu-west", AMERICA: "us-east", JAPAN: "ap-southeast"}
NETWORKS = [
    {"cidr": "129.132.1.1/32", "country": "FR"},
    {"cidr": "128.112.1.1/32", "country": "US"},
    {"cidr": "130.69.1.1/32", "country": "JP"},
]
SENT = (
    None, FRANCE, f"{FRANCE}, {AMERICA}", f"{FRANCE}, {AMERICA}, {JAPAN}", f"{AMERICA}:443, [::ffff:{JAPAN}]",
    ", ".join([FRANCE] * 100), "x" * 8_000, f"{AMERICA}, unknown", "",
)  # fmt: skip


def ask(world: World, marker: str, **headers: str) -> httpx.Response:
    with world.client() as client:
        response = client.post(CHAT, json=BODY, headers={"x-request-id": marker, **headers})
    assert response.status_code == 200, response.text
    return response


def nearest(**places: object) -> dict[str, object]:
    return {"rules": {"strategy": "router_balancing"}, "places": {"networks": NETWORKS, **places}}


@pytest.mark.parametrize("hops", [0, 1, 2])
def test_the_client_is_who_envoy_says_it_is_at_every_number_of_hops(new_world, marker: str, hops: int) -> None:
    """Whatever stands on the left. Without hops it is the peer, of whom the table knows nothing."""
    world: World = new_world("buffered", settings=nearest(trusted_hops=hops))
    taken = set()
    for i, forwarded in enumerate(SENT):
        headers = {} if forwarded is None else {"x-forwarded-for": forwarded}
        response = ask(world, f"{marker}-{i}", **headers)
        client = world.envoy.access(f"{marker}-{i}")["client"]
        address = ipaddress.ip_address(client)
        address = getattr(address, "ipv4_mapped", None) or address
        expected = NEAREST.get(str(address))
        taken.add(expected)
        if expected is not None:
            assert response.headers[names.REGION] == expected, (forwarded, client)
    assert taken == {0: {None}, 1: {None, *NEAREST.values()}, 2: {None, "eu-west", "us-east"}}[hops]


def sources(world: World) -> dict[str, float]:
    """How places of decided requests were found."""
    page = httpx.get(f"http://127.0.0.1:{world.config.server.metrics_port}/metrics").text
    families = {family.name: family for family in text_string_to_metric_families(page)}
    samples = families["isogloss_places"].samples
    return {sample.labels["source"]: sample.value for sample in samples if sample.name.endswith("_total")}


def test_where_nobody_stands_in_front_no_header_is_believed(new_world, marker: str) -> None:
    world: World = new_world("buffered", settings=nearest())
    spoofed = {"x-forwarded-for": FRANCE, "x-real-ip": FRANCE, "forwarded": f"for={FRANCE}", "true-client-ip": FRANCE}
    for header, value in spoofed.items():
        ask(world, marker, **{header: value})
    ask(world, marker, **spoofed, **{"cf-ipcountry": "FR", "x-geo-country": "FR"})
    assert sources(world) == {"none": 5}


def test_an_edge_header_counts_only_from_our_own_proxy(new_world, marker: str) -> None:
    world: World = new_world("headers", settings=nearest(trusted_hops=1, headers=["cf-ipcountry", "x-geo-country"]))
    via = {"x-forwarded-for": FRANCE}
    told = ask(world, marker, **via, **{"cf-ipcountry": "JP"})
    assert told.headers[names.REGION] == "ap-southeast"
    assert ask(world, marker, **via, **{"cf-ipcountry": "XX", "x-geo-country": "US"}).headers[names.REGION] == "us-east"
    for junk in ("XX", "jp", "", "J" * 8_000, "JP, US"):
        assert ask(world, marker, **via, **{"cf-ipcountry": junk}).headers[names.REGION] == "eu-west"
    assert sources(world) == {"header cf-ipcountry": 1, "header x-geo-country": 1, "network table": 5}
    ask(world, marker, **{"cf-ipcountry": "JP"})  # came past the proxy
    assert sources(world)["none"] == 1
