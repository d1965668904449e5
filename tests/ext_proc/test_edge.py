"""Claims about headers in which a CDN says where the client is: from whom they are believed, and which values."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ext_proc import config
from ext_proc.config import EdgeHeader
from ext_proc.errors import ConfigError
from ext_proc.sources import edge
from ext_proc.sources.places import Places
from policy.types import Place

CLIENT, CDN, BALANCER = "203.0.113.7", "198.51.100.1", "10.0.0.1"
OURS = ("198.51.100.0/24", "10.0.0.0/8")
FULL = EdgeHeader(country="cf-ipcountry", latitude="cf-iplatitude", longitude="cf-iplongitude")


def where(
    said: dict[str, str], forwarded: str | None = f"{CLIENT}, {CDN}", source: str = f"{CDN}:443", **settings
) -> Place | None:
    settings = {"trusted_proxies": OURS, "headers": ("cf-ipcountry",)} | settings
    headers = said if forwarded is None else said | {"x-forwarded-for": forwarded}
    return Places(config.Places(**settings)).place(headers, {"source.address": source})


def by(name: str, country: str, continent: str, **more) -> Place:
    return Place(source=f"header {name}", country=country, continent=continent, **more)


DE = by("cf-ipcountry", "DE", "EU")


@pytest.mark.parametrize(
    ("settings", "forwarded", "believed"),
    [
        ({"trusted_proxies": OURS}, f"{CLIENT}, {CDN}", True),
        ({"trusted_proxies": OURS}, f"{CLIENT}, {CDN}, {BALANCER}", True),
        ({"trusted_proxies": OURS}, CLIENT, False),  # the client itself is the peer
        ({"trusted_proxies": OURS}, f"{CDN}, {CLIENT}", False),
        ({"trusted_proxies": OURS}, f"{CLIENT}, unknown", False),
        ({"trusted_hops": 1, "trusted_proxies": ()}, f"{CLIENT}, {CDN}", True),
        ({"trusted_hops": 1, "trusted_proxies": ()}, CLIENT, False),  # came past the proxy
        ({"trusted_hops": 2, "trusted_proxies": ()}, f"{CLIENT}, {CDN}", False),
    ],
)
def test_only_what_came_by_our_own_proxy_is_believed(settings, forwarded, believed):
    assert where({"cf-ipcountry": "DE"}, forwarded, **settings) == (DE if believed else None)


@pytest.mark.parametrize(("source", "believed"), [(f"{CDN}:443", True), (f"{CLIENT}:443", False), ("", False)])
def test_without_a_forwarded_address_the_connection_itself_is_the_peer(source, believed):
    assert where({"cf-ipcountry": "DE"}, None, source) == (DE if believed else None)


def test_headers_are_asked_in_the_operators_order_and_junk_is_passed_over():
    said = {"x-vercel-ip-country": "FR", "cf-ipcountry": "XX", "cloudfront-viewer-country": "US"}
    order = ("cf-ipcountry", "x-vercel-ip-country", "cloudfront-viewer-country")
    assert where(said, headers=order) == by("x-vercel-ip-country", "FR", "EU")
    assert where(said, headers=order[::-1]) == by("cloudfront-viewer-country", "US", "NA")
    assert where(said, headers=("x-geo-country",)) is None


def test_a_header_goes_before_the_address_and_junk_leaves_it_to_the_address():
    table = (config.Network(cidr="203.0.113.0/24", country="JP"),)
    assert where({"cf-ipcountry": "DE"}, networks=table) == DE
    by_table = Place(source="network table", country="JP", continent="AS")
    assert where({"cf-ipcountry": "T1"}, networks=table) == by_table
    assert where({"cf-ipcountry": "DE"}, CLIENT, networks=table) == by_table


@pytest.mark.parametrize(
    "junk",
    ["", " ", "XX", "T1", "de", "De", "DEU", "D", "UK", "EU", "A1", "Germany", "DE\0", "DE;q=1", "ДЕ", "DE" * 5000,
     "," * 10_000, ",DE", "DE, FR", "FR, DE", "DE,DE", "US,Mountain View,DE"],
)  # fmt: skip
def test_what_is_no_country_is_no_place(junk):
    assert where({"cf-ipcountry": junk}) is None


@pytest.mark.parametrize("spelled", ["DE", " DE ", "DE,Frankfurt", "DE, Frankfurt am Main"])
def test_a_country_may_have_a_city_behind_it(spelled):
    assert where({"cf-ipcountry": spelled}) == DE


@pytest.mark.parametrize(
    ("latitude", "longitude", "position"),
    [
        ("50.1", "8.7", (50.1, 8.7)),
        ("-33.9", "151.2", (-33.9, 151.2)),
        ("0", "0", (0.0, 0.0)),
        ("50.1", "", (None, None)),
        ("", "8.7", (None, None)),
        ("91", "8.7", (None, None)),
        ("50.1", "-181", (None, None)),
        ("nan", "8.7", (None, None)),
        ("inf", "8.7", (None, None)),
        ("x", "8.7", (None, None)),
        ("50.1, 51.2", "8.7", (None, None)),
        ("1" * 10_000, "8.7", (None, None)),
    ],
)
def test_coordinates_are_taken_whole_or_not_at_all_and_the_country_stands_without(latitude, longitude, position):
    said = {"cf-ipcountry": "DE", "cf-iplatitude": latitude, "cf-iplongitude": longitude}
    at = dict(zip(("latitude", "longitude"), position, strict=True))
    assert where(said, headers=(FULL,)) == by("cf-ipcountry", "DE", "EU", **at)
    assert where(said) == DE


@given(st.text(max_size=300), st.text(max_size=300))
def test_no_value_makes_it_raise(country: str, degrees: str):
    found = edge.place({"cf-ipcountry": country, "cf-iplatitude": degrees, "cf-iplongitude": degrees}, FULL)
    assert found is None or found.country is not None


def test_headers_without_anybody_to_believe_are_a_mistake():
    with pytest.raises(ConfigError, match="say whose they are with trusted_hops or trusted_proxies"):
        config.parse(b"places: {headers: [cf-ipcountry]}")
    with pytest.raises(ConfigError, match=r"places\.headers\[0\]"):
        config.parse(b"places: {headers: [CF-IPCountry], trusted_hops: 1}")
    read = config.parse(b"places: {trusted_hops: 1, headers: [cf-ipcountry, {country: a, latitude: b, longitude: c}]}")
    assert read.places.headers == ("cf-ipcountry", EdgeHeader(country="a", latitude="b", longitude="c"))
