"""Whose address counts, with a real Envoy: never one a client wrote where no proxy of ours stands."""

import ipaddress
import os
import random
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from ext_proc import names
from tests.e2e.load import BODY, load
from tests.e2e.world import World, until
from tests.ext_proc.test_places import database

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


@pytest.fixture
def city(tmp_path: Path) -> Path:
    return database(tmp_path / "city.mmdb", {f"{FRANCE}/32": {"country": {"iso_code": "FR"}}})


def from_(world: World, address: str) -> dict[str, float]:
    """Sources after one more request of *address*."""
    ask(world, "", **{"x-forwarded-for": address})
    return sources(world)


def test_private_unknown_and_reserved_addresses_are_served_and_counted(new_world, city: Path) -> None:
    world: World = new_world("buffered", settings={"places": {"databases": [str(city)], "trusted_hops": 1}})
    assert from_(world, FRANCE) == {"address": 1}
    for i, address in enumerate(("10.0.0.1", "127.0.0.1", "240.0.0.1", "::1", "9.9.9.9", "unknown"), start=1):
        assert from_(world, address) == {"address": 1, "none": i}


def test_a_database_that_is_overwritten_truncated_garbled_or_gone_under_load_costs_nothing(
    new_world, city: Path, tmp_path: Path
) -> None:
    uncached = {"databases": [str(city)], "trusted_hops": 1, "cache": 0}
    nearest_first = {"rules": {"strategy": "router_balancing"}, "places": uncached}
    world: World = new_world("headers", settings=nearest_first)
    whole, chance = city.read_bytes(), random.Random(1)
    american = database(tmp_path / "new.mmdb", {f"{FRANCE}/32": {"country": {"iso_code": "US"}}}).read_bytes()
    asn = database(tmp_path / "asn.mmdb", {}, "GeoLite2-ASN").read_bytes()

    def events() -> float:
        page = httpx.get(f"http://127.0.0.1:{world.config.server.metrics_port}/metrics").text
        family = next(f for f in text_string_to_metric_families(page) if f.name == "isogloss_source_events")
        wanted = {"source": "places", "event": "refused"}
        return next(sample.value for sample in family.samples if sample.labels == wanted)

    def asked() -> set[str]:
        """Where the clients of a few requests are taken to be: by the region their country's node is in."""
        regions = {"eu-west": "FR", "us-east": "US"}
        answers = [ask(world, "", **{"x-forwarded-for": FRANCE}).headers[names.REGION] for _ in range(3)]
        return {regions.get(region, "none") for region in answers}

    assert world.service is not None
    pid = world.service.pid
    with load(world, threads=2) as traffic:
        assert asked() == {"FR"}
        for times, content in enumerate((whole[:100], b"", chance.randbytes(9_000), asn), start=1):
            with city.open("r+b") as out:  # in place, as no careful program does
                out.write(content)
                out.truncate()
            until(lambda times=times: asked() == {"FR"} and events() == times, f"refusal {times}", 15)  # type: ignore[misc]
        city.unlink()
        until(lambda: asked() == {"FR"} and events() == 5, "the missing file", 15)
        (tmp_path / "renamed").write_bytes(american)
        os.replace(tmp_path / "renamed", city)
        until(lambda: "read again" in world.service.said(100_000), "the new file", 15)
        assert asked() == {"US"}
    assert set(traffic.statuses()) == {200}, traffic.statuses()
    assert traffic.undecided(0) == 0
    assert (world.service.pid, world.service.alive) == (pid, True)
    assert "Traceback" not in world.service.said(100_000)
