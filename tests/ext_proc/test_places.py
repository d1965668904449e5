"""Claims about where a client is. The databases are invented: real-looking prefixes, places of our own."""
# ruff: noqa: ASYNC240 - the files are tiny, and nobody else waits for the loop

import asyncio
import ipaddress
import os
import random
import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import geoip2.database
import pytest
from mmdb_writer import MMDBWriter
from netaddr import IPSet

from ext_proc import config
from ext_proc.errors import ConfigError
from ext_proc.sources.places import Places
from policy.areas import continent_of
from policy.types import Place
from tests.demo.clients import networks

ZURICH, TOKYO = "129.132.1.1", "130.69.1.1"
V6 = "2001:620::1"
QUICK = 0.01

Tree = Mapping[str, Mapping[str, Any]]
NESTED: Tree = {
    "0.0.0.0/1": {},
    "129.132.0.0/16": {
        "country": {"iso_code": "CH", "names": {"en": "Switzerland"}},
        "continent": {"code": "EU"},
        "city": {"names": {"en": "Zurich"}},
        "location": {"latitude": 47.4, "longitude": 8.5},
    },
    "130.69.0.0/16": {"registered_country": {"iso_code": "JP"}, "location": {"latitude": 35.7}},
    "2001:620::/32": {"country": {"iso_code": "CH"}},
    "8.8.8.0/24": {"continent": {"code": "NA"}},
}
FLAT: Tree = {
    "129.132.0.0/16": {"country_code": "CH", "city": "", "latitude": 47.4, "longitude": 8.5, "timezone": ""},
    "130.69.0.0/16": {"country_code": "JP", "latitude": "", "longitude": ""},
    "8.8.8.0/24": {"country_code": "", "city": ""},
}
CH = Place(source="address", country="CH", continent="EU", latitude=47.4, longitude=8.5)


def database(path: Path, tree: Tree = NESTED, kind: str = "GeoLite2-City", version: int = 6) -> Path:
    writer = MMDBWriter(version, kind, languages=["en"], ipv4_compatible=version == 6)
    for network, record in tree.items():
        writer.insert_network(IPSet([network]), dict(record))
    writer.to_db_file(str(path))
    return path


def where(places: Places, address: str | None, **locality: str) -> Place | None:
    attributes = {f"xds.node.locality.{key}": value for key, value in locality.items()}
    return places.place({"x-forwarded-for": address} if address else {}, attributes)


def places(*databases: Path, **settings: Any) -> Places:
    return Places(config.Places(databases=databases, **settings))


@pytest.fixture
def nested(tmp_path: Path) -> Path:
    return database(tmp_path / "city.mmdb")


def test_without_a_database_a_place_is_not_known_and_nothing_fails():
    assert where(places(), ZURICH) is None
    assert where(places(), None) is None


def test_a_nested_database_gives_country_continent_and_coordinates(nested: Path):
    assert where(places(nested), ZURICH) == CH


def test_a_nested_database_reads_as_geoip2_itself_reads_it(nested: Path):
    with geoip2.database.Reader(nested) as reference:
        for address in (ZURICH, V6):
            expected, found = reference.city(address), where(places(nested), address)
            assert found is not None
            assert found.country == expected.country.iso_code
            assert (found.latitude, found.longitude) == (expected.location.latitude, expected.location.longitude)


def test_a_nested_record_may_lack_anything(nested: Path):
    known = places(nested)
    assert where(known, TOKYO) == Place(source="address", country="JP", continent="AS")  # half a position is none
    assert where(known, V6) == Place(source="address", country="CH", continent="EU")
    assert where(known, "8.8.8.8") == Place(source="address", continent="NA")
    assert where(known, "9.9.9.9") is None
    assert where(known, "200.1.1.1") is None


def test_a_flat_database_gives_the_same_and_its_empty_strings_are_absent(tmp_path: Path):
    known = places(database(tmp_path / "flat.mmdb", FLAT, "city ipv4", 4))
    assert where(known, ZURICH) == CH
    assert where(known, TOKYO) == Place(source="address", country="JP", continent="AS")
    assert where(known, "8.8.8.8") is None


def test_several_databases_are_asked_in_order_and_by_address_family(tmp_path: Path):
    v4 = database(tmp_path / "v4.mmdb", FLAT, "city ipv4", 4)
    v6 = database(tmp_path / "v6.mmdb", {"2001:620::/32": {"country_code": "CH"}}, "city ipv6", 6)
    for known in (places(v4, v6), places(v6, v4)):
        assert where(known, ZURICH) == CH
        assert where(known, V6) == Place(source="address", country="CH", continent="EU")


def test_an_ipv4_address_dressed_as_ipv6_is_the_same_client(nested: Path):
    assert where(places(nested), f"::ffff:{ZURICH}") == CH


def test_only_a_country_may_be_known(tmp_path: Path):
    known = places(database(tmp_path / "c.mmdb", {"129.132.0.0/16": {"country_code": "CH"}}, "country ipv4", 4))
    assert where(known, ZURICH) == Place(source="address", country="CH", continent="EU")


@pytest.mark.parametrize("code", ["ZZ", "XX", "EU", "AP", "UK", "ch", "AN"])
def test_a_code_that_is_no_country_is_not_taken_for_one(code: str, tmp_path: Path):
    """Old and whois-made databases hold some; a residency rule must not take one for a country outside it."""
    nested = database(tmp_path / "n", {"129.132.0.0/16": {"country": {"iso_code": code}, "continent": {"code": "EU"}}})
    flat = database(tmp_path / "f", {"129.132.0.0/16": {"country_code": code}}, "country ipvAll")
    assert where(places(nested), ZURICH) == Place(source="address", continent="EU")
    assert where(places(flat), ZURICH) is None


@pytest.mark.parametrize(
    ("country", "continent"),
    [("US", "NA"), ("TR", "AS"), ("RU", "EU"), ("EG", "AF"), ("AU", "OC"), ("BR", "SA"), ("AQ", "AN"), ("XX", None),
     (None, None)],
)  # fmt: skip
def test_a_country_lies_on_a_continent(country, continent):
    assert continent_of(country) == continent


def test_the_demos_networks_are_public_and_in_a_country_on_their_continent():
    for row in networks():
        assert continent_of(row.country) == row.continent, row
        assert ipaddress.ip_network(row.cidr).is_global, row


@pytest.mark.parametrize(
    "special",
    ["0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.127.255.254", "127.0.0.1", "169.254.1.1", "172.16.0.1",
     "172.31.255.255", "192.0.2.1", "192.168.1.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1",
     "239.255.255.250", "240.0.0.1", "255.255.255.255", "::", "::1", "::ffff:10.0.0.1", "100::1", "2001::1",
     "2001:db8::1", "fc00::1", "fd12::1", "fe80::1", "febf::1", "ff02::1", "ff0e::1"],
)  # fmt: skip
def test_special_ranges_have_no_place_whatever_a_database_says(special: str, tmp_path: Path):
    everywhere = {"::/1": {"country": {"iso_code": "JP"}}, "8000::/1": {"country": {"iso_code": "JP"}}}
    known = places(database(tmp_path / "all.mmdb", everywhere))
    assert where(known, special) is None


@pytest.mark.parametrize(
    "public", ["100.63.255.255", "100.128.0.1", "172.32.0.1", "2606:4700::1", "11.0.0.1", "2a00::1"]
)
def test_their_neighbours_do(public: str, tmp_path: Path):
    known = places(database(tmp_path / "all.mmdb", {"::/1": {"country": {"iso_code": "JP"}}}))
    assert where(known, public) is not None


def test_address_then_locality_then_the_table_of_networks(nested: Path):
    networks = (
        config.Network(cidr="10.0.0.0/8", region="wide"),
        config.Network(cidr="10.1.0.0/16", region="narrow", latitude=1.0, longitude=2.0),
        config.Network(cidr="129.132.0.0/16", region="ours"),
        config.Network(cidr="fd00::/8", region="six"),
    )
    table = places(nested, networks=networks)
    both = places(nested, networks=networks, locality=True)
    mesh = Place(source="locality", region="eu-west", zone="eu-west-1a")

    assert where(both, ZURICH, region="eu-west") == CH
    assert where(both, "10.1.2.3", region="eu-west", zone="eu-west-1a") == mesh
    assert where(both, "10.1.2.3", region="", zone="") == where(table, "10.1.2.3")
    assert where(both, None, region="eu-west", zone="") == Place(source="locality", region="eu-west")
    assert where(table, "10.1.2.3", region="eu-west") == Place(
        source="network table", region="narrow", latitude=1.0, longitude=2.0
    )
    assert where(table, "10.2.2.3") == Place(source="network table", region="wide")
    assert where(table, "fd00::1") == Place(source="network table", region="six")
    assert where(table, "192.168.1.1") is None


def test_the_cache_is_bounded_and_never_wrong(nested: Path):
    for size in (0, 1, 3):
        known = places(nested, cache=size)
        for _ in range(3):
            assert where(known, ZURICH) == CH
            assert where(known, "9.9.9.9") is None
            for i in range(10):
                assert where(known, f"129.132.0.{i}") == CH
        assert len(known._known) <= size


@pytest.mark.parametrize("kind", ["GeoIP2-Anonymous-IP", "GeoIP2-Connection-Type", "GeoIP2-Domain", ""])
def test_a_database_of_another_kind_is_refused_by_name(kind: str, tmp_path: Path):
    path = database(tmp_path / "odd.mmdb", {"8.8.8.0/24": {"is_anonymous": True}}, kind)
    with pytest.raises(ConfigError, match=rf"odd\.mmdb is a '{kind}' database; a city, country or ASN one is needed"):
        places(path)


@pytest.mark.parametrize("content", [None, b"", b"not a database", b"\xab\xcd\xefMaxMind.com"])
def test_a_file_that_is_no_database_is_refused_by_name(content: bytes | None, tmp_path: Path):
    path = tmp_path / "bad.mmdb"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"places\.databases: .*bad\.mmdb"):
        places(path)


def test_flipped_bits_are_either_refused_or_cost_the_place_only(nested: Path):
    whole, chance = nested.read_bytes(), random.Random(1)
    for _ in range(300):
        damaged = bytearray(whole)
        for _ in range(chance.choice([1, 10, 100])):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        nested.write_bytes(damaged)
        try:
            known = places(nested, cache=0)
        except ConfigError:
            continue
        for address in (ZURICH, TOKYO, V6, "8.8.8.8"):
            where(known, address)


@asynccontextmanager
async def watched(*databases: Path, poll_s: float = QUICK) -> AsyncIterator[Places]:
    known = places(*databases)
    task = asyncio.create_task(known.watch(poll_s))
    try:
        yield known
    finally:
        assert not task.done(), task
        task.cancel()


async def becomes(known: Places, country: str | None) -> None:
    """Within some polls, and never through an error or an unknown place."""
    async with asyncio.timeout(10):
        while (found := where(known, ZURICH)) is None or found.country != country:
            assert found is not None
            await asyncio.sleep(QUICK / 4)


async def refused(known: Places, times: int) -> None:
    async with asyncio.timeout(10):
        while known.refused < times:
            assert where(known, ZURICH) is not None
            await asyncio.sleep(QUICK / 4)


def other(path: Path, country: str) -> Path:
    return database(path, {"129.132.0.0/16": {"country": {"iso_code": country}}})


async def test_a_new_database_is_taken_up_while_requests_are_served_however_it_arrives(nested: Path, tmp_path: Path):
    async with watched(nested) as known:
        os.replace(other(tmp_path / "new", "AT"), nested)
        await becomes(known, "AT")
        nested.write_bytes(other(tmp_path / "new", "DE").read_bytes())
        await becomes(known, "DE")
        shutil.copyfile(other(tmp_path / "new", "FR"), tmp_path / "target")
        nested.unlink()
        nested.symlink_to(tmp_path / "target")
        await becomes(known, "FR")
        assert known.refused == 0


async def test_truncated_garbled_wrong_or_gone_it_keeps_the_last_good_one_and_says_so_once(
    nested: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    asn = database(tmp_path / "asn", {}, "GeoLite2-ASN").read_bytes()
    async with watched(nested) as known:
        for times, content in enumerate((b"", os.urandom(5000), nested.read_bytes()[:900], asn), start=1):
            nested.write_bytes(content)
            await refused(known, times)
        nested.unlink()
        await refused(known, 5)
        await asyncio.sleep(5 * QUICK)
        assert known.refused == 5
        assert len([r for r in caplog.records if "keeping the database we have" in r.message]) == 5
        other(nested, "AT")
        await becomes(known, "AT")


async def test_a_file_still_being_written_is_left_alone(nested: Path, tmp_path: Path):
    new = other(tmp_path / "new", "AT").read_bytes()
    async with watched(nested, poll_s=0.2) as known:
        with nested.open("wb") as out:
            for i in range(0, len(new), 1 + len(new) // 20):
                out.write(new[i : i + 1 + len(new) // 20])
                out.flush()
                await asyncio.sleep(0.02)
        await becomes(known, "AT")
        assert known.refused == 0


async def test_a_place_found_before_does_not_outlive_its_database(nested: Path):
    async with watched(nested) as known:
        assert where(known, ZURICH) == CH
        other(nested, "AT")
        await becomes(known, "AT")


def test_hostile_headers_are_no_place(nested: Path):
    known = places(nested)
    for header in ("unknown", "\0", "é" * 5000, ",,,,", "8.8.8.8\r\nx: y", "::1%\n"):
        assert where(known, header) is None
