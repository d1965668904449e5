"""Claims about networks (ASN): whose an address is, and what that says about where it is."""

from pathlib import Path

import pytest

from ext_proc import config
from ext_proc.config import Network
from ext_proc.errors import ConfigError
from policy.types import Place
from tests.ext_proc.test_places import CH, V6, ZURICH, Tree, becomes, database, other, places, refused, watched, where

SWITCH, CLOUD = "Switch", "A Cloud"
CLOUDY = "52.95.0.1"
NESTED: Tree = {
    "129.132.0.0/16": {"autonomous_system_number": 559, "autonomous_system_organization": SWITCH},
    "2001:620::/32": {"autonomous_system_number": 559, "autonomous_system_organization": SWITCH},
    "52.95.0.0/16": {"autonomous_system_number": 16509, "autonomous_system_organization": CLOUD},
    "9.9.9.0/24": {"autonomous_system_organization": "of no number"},
}
FLAT: Tree = {
    "129.132.0.0/16": {"autonomous_system_number": "559", "autonomous_system_organization": ""},
    "52.95.0.0/16": {"autonomous_system_number": "16509x"},
    "8.8.8.0/24": {"autonomous_system_number": 2**40},
}
ZURICH_AND_CLOUD: Tree = {
    "129.132.0.0/16": {"country": {"iso_code": "CH"}, "location": {"latitude": 47.4, "longitude": 8.5}},
    "52.95.0.0/16": {"country": {"iso_code": "US"}, "location": {"latitude": 39.0, "longitude": -77.5}},
}


@pytest.fixture
def city(tmp_path: Path) -> Path:
    return database(tmp_path / "city.mmdb", ZURICH_AND_CLOUD)


@pytest.fixture
def asn(tmp_path: Path) -> Path:
    return database(tmp_path / "asn.mmdb", NESTED, "GeoLite2-ASN")


def at(**fields) -> Place:
    return Place(**{"source": "address", **fields})


def test_a_place_says_whose_network_it_is_in_whichever_database_comes_first(city: Path, asn: Path):
    zurich = at(country="CH", continent="EU", latitude=47.4, longitude=8.5, asn=559, organisation=SWITCH)
    for known in (places(city, asn), places(asn, city)):
        assert where(known, ZURICH) == zurich
        assert where(known, ZURICH) == zurich  # remembered
        assert where(known, V6) == at(asn=559, organisation=SWITCH)
        assert where(known, "9.9.9.9") is None


def test_a_flat_database_may_give_the_number_as_text(tmp_path: Path):
    known = places(database(tmp_path / "asn.mmdb", FLAT, "asn ipv4", 4))
    assert where(known, ZURICH) == at(asn=559)
    assert where(known, CLOUDY) is None
    assert where(known, "8.8.8.8") is None


def test_databases_by_address_family_stand_beside_each_other(city: Path, tmp_path: Path):
    four = database(tmp_path / "4.mmdb", FLAT, "asn ipv4", 4)
    six = database(tmp_path / "6.mmdb", {"2001:620::/32": NESTED["2001:620::/32"]}, "asn ipv6")
    for known in (places(four, six, city), places(city, six, four)):
        assert (where(known, ZURICH), where(known, V6)) == (
            at(country="CH", continent="EU", latitude=47.4, longitude=8.5, asn=559),
            at(asn=559, organisation=SWITCH),
        )


def test_our_own_table_knows_better_than_geolocation(city: Path, asn: Path):
    """A network of ours at a place of its own; a cloud, of whose clients geolocation says nothing."""
    table = (
        Network(asn=559, country="DE", region="eu-central", latitude=50.1, longitude=8.7),
        Network(asn=16509),
    )
    known = places(city, asn, networks=table)
    assert where(known, ZURICH) == Place(
        source="network table", country="DE", continent="EU", region="eu-central", latitude=50.1, longitude=8.7,
        asn=559, organisation=SWITCH,
    )  # fmt: skip
    assert where(known, CLOUDY) == Place(source="network table", asn=16509, organisation=CLOUD)


def test_a_network_without_a_place_leaves_the_question_to_whoever_is_asked_next(asn: Path):
    known = places(asn, networks=(Network(cidr="129.132.0.0/16", country="CH"),), locality=True)
    assert where(known, ZURICH) == Place(source="network table", country="CH", continent="EU")
    assert where(known, ZURICH, region="eu") == Place(source="locality", region="eu")
    assert where(known, CLOUDY) == at(asn=16509, organisation=CLOUD)


def test_an_entry_by_number_needs_a_database_of_networks(city: Path):
    with pytest.raises(ConfigError, match="an entry by asn needs a database of networks"):
        places(city, networks=(Network(asn=559),))


@pytest.mark.parametrize(
    ("network", "says"),
    [
        ("{}", "give cidr or asn, one of them"),
        ("{cidr: 10.0.0.0/8, asn: 1}", "give cidr or asn, one of them"),
        ("{asn: 0}", "asn: Expected `int` >= 1"),
        ("{asn: 4294967296}", "asn: Expected `int` <= 4294967295"),
        ("{asn: 1, country: UK}", "'UK' is none of ISO 3166-1"),
        ("{asn: 1, country: de}", "country: Expected `str` matching regex"),
        ("{asn: 1, continent: Europe}", "continent: Expected `str` matching regex"),
    ],
)
def test_a_wrong_entry_is_named(network: str, says: str):
    with pytest.raises(ConfigError) as caught:
        config.parse(f"places: {{networks: [{network}]}}".encode())
    assert says in str(caught.value)


async def test_a_city_database_does_not_become_one_of_networks_nor_the_other_way_round(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    """Started with the wrong one, every place would be lost without a word."""
    city, asn = other(tmp_path / "city.mmdb", "CH"), database(tmp_path / "asn.mmdb", NESTED, "GeoLite2-ASN")
    whole = city.read_bytes()
    async with watched(city, asn) as known:
        city.write_bytes(asn.read_bytes())
        await refused(known, 1)
        asn.write_bytes(whole)
        await refused(known, 2)
        assert where(known, ZURICH) == at(country="CH", continent="EU", asn=559, organisation=SWITCH)
        other(city, "AT")
        await becomes(known, "AT")
    said = [record.getMessage() for record in caplog.records if "keeping" in record.message]
    assert said[0].endswith("city.mmdb is one of networks now; it was one of places")


def test_a_place_without_a_database_of_networks_has_none(city: Path):
    assert where(places(city), ZURICH) == CH
