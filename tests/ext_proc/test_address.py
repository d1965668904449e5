"""Claims about whose address a request has. What we say is compared with what a real Envoy says of the same request."""

import ipaddress
import time
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

import httpx
import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from ext_proc import envoy
from ext_proc.config import Places
from ext_proc.sources.address import MAX_BYTES, MAX_ENTRIES, Address, _parsed, client_address, parse
from tests.e2e.processes import Process, listens
from tests.standin.running import free_ports

CLIENT, EDGE, PROXY = "203.0.113.7", "10.0.0.1", "10.0.0.2"
ADDRESSES = st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6))


def taken(
    forwarded: str | None = None, *, source: str = "", hops: int = 0, proxies: tuple[str, ...] = ()
) -> str | None:
    headers = {} if forwarded is None else {"x-forwarded-for": forwarded}
    attributes = {"source.address": source} if source else {}
    found = client_address(headers, attributes, Places(trusted_hops=hops, trusted_proxies=proxies))
    return None if found is None else str(found)


@pytest.mark.parametrize(
    ("hops", "header", "address"),
    [
        (0, f"spoof, {CLIENT}", CLIENT),
        (1, f"spoof, {CLIENT}, {EDGE}", CLIENT),
        (2, f"spoof, {CLIENT}, {EDGE}, {PROXY}", CLIENT),
        (0, f"1.1.1.1, {CLIENT}", CLIENT),
        (1, f"1.1.1.1,{CLIENT},{EDGE}", CLIENT),
        (1, CLIENT, CLIENT),  # came past the balancer: our own Envoy wrote that entry
        (2, f"{CLIENT}, {EDGE}", EDGE),
        (0, f"{CLIENT}, unknown", None),
        (1, f"{CLIENT}, _x, {EDGE}", None),
    ],
)
def test_the_entry_that_counts_stands_so_many_trusted_proxies_from_the_right(hops, header, address):
    assert taken(header, hops=hops) == address


@pytest.mark.parametrize(
    ("header", "address"),
    [
        (f"1.1.1.1, {CLIENT}, {EDGE}, {PROXY}", CLIENT),
        (f"{EDGE}, {CLIENT}, {PROXY}", CLIENT),
        (f"1.1.1.1, 2001:db8::7, [fd00::1]:443, {PROXY}", "2001:db8::7"),
        (f"1.1.1.1, unknown, {PROXY}", None),  # trust ends where an entry says nothing
        (f"{EDGE}, {PROXY}", None),
        (", ".join([CLIENT, *[PROXY] * 200]), None),  # more proxies than anybody has
    ],
)
def test_or_it_is_the_rightmost_one_outside_our_proxies(header, address):
    assert taken(header, proxies=("10.0.0.0/8", "fd00::/8")) == address


def test_several_header_lines_are_one_list():
    assert taken(", ".join(["9.9.9.9, 8.8.8.8", f"7.7.7.7, {CLIENT}"])) == CLIENT


def test_a_hundred_spoofed_entries_change_nothing():
    spoofed = ", ".join(f"8.8.{i}.8" for i in range(100))
    assert taken(f"{spoofed}, {CLIENT}") == CLIENT
    assert taken(f"{spoofed}, {CLIENT}, {EDGE}", hops=1) == CLIENT
    assert taken(f"{spoofed}, {CLIENT}, {EDGE}", proxies=("10.0.0.0/8",)) == CLIENT


@pytest.mark.parametrize(
    "junk", ["x" * 10_000, "1" * 10_000, "," * 10_000, "8.8.8.8," * 1300, "[" * 10_000, "%" * 10_000]
)
def test_a_header_of_ten_kilobytes_is_read_at_its_right_end_only(junk):
    assert taken(f"{junk},{CLIENT}") == CLIENT
    assert taken(junk) in (None, "8.8.8.8")


def test_an_entry_cut_in_two_by_the_limit_is_no_address():
    """Otherwise 99.8.8.8.8 would become 9.8.8.8.8 or, worse, 8.8.8.8."""
    tail = f", {PROXY}" * 20
    header = f"junk, 198.51.100.1{' ' * (MAX_BYTES - len(tail) - len('100.1'))}{tail}"
    assert taken(header, hops=20 - 1) == PROXY
    assert client_address({"x-forwarded-for": header}, {}, Places(trusted_proxies=("10.0.0.0/8",))) is None


def test_what_is_too_long_for_an_address_is_not_remembered():
    before = _parsed.cache_info().currsize
    for i in range(10):
        assert parse(f"{i}" * 4000) is None
    assert _parsed.cache_info().currsize == before


def test_a_header_of_commas_costs_no_more_than_a_few_entries():
    began = time.perf_counter()
    for _ in range(100):
        taken("," * 1_000_000, proxies=("10.0.0.0/8",))
    assert (time.perf_counter() - began) / 100 < 0.01
    assert MAX_ENTRIES <= 64


@pytest.mark.parametrize(
    ("source", "address"),
    [
        (f"{CLIENT}:51234", CLIENT),
        (CLIENT, CLIENT),
        ("[2001:db8::7]:443", "2001:db8::7"),
        ("[fe80::1%eth0]:443", "fe80::1"),
        ("/run/envoy.sock", None),
        ("", None),
    ],
)
def test_without_the_header_the_connection_itself_counts(source, address):
    assert taken(source=source) == address
    assert taken("", source=source) == address


def test_an_unreadable_entry_is_not_made_up_for_by_the_connection():
    assert taken("unknown", source=f"{CLIENT}:1") is None


@pytest.mark.parametrize(
    "spelling",
    ["2001:db8::7", "2001:0DB8:0:0::0007", "[2001:db8::7]", "[2001:db8::7]:443", '"[2001:db8::7]:443"', " 2001:db8::7 ",
     "2001:db8::7%eth0", "[2001:db8::7%25eth0]:80"],
)  # fmt: skip
def test_one_ipv6_address_however_it_is_spelled(spelling):
    assert parse(spelling) == IPv6Address("2001:db8::7")


@pytest.mark.parametrize(
    "spelling",
    [
        CLIENT,
        f"{CLIENT}:55",
        f" {CLIENT}\t",
        f'"{CLIENT}:55"',
        f"::ffff:{CLIENT}",
        f"[::ffff:{CLIENT}]:55",
        "::ffff:cb00:7107",
    ],
)
def test_one_ipv4_address_however_it_is_spelled(spelling):
    assert parse(spelling) == IPv4Address(CLIENT)


@pytest.mark.parametrize(
    "junk",
    ["", " ", "unknown", "_x", "_hidden:4711", "localhost", "8.8.8", "8.8.8.8.8", "08.8.8.8", "256.1.1.1", "1.2.3.4:x",
     "1.2.3.4:", "1.2.3.4%eth0", "1.2.3.4:99:1", "[::1]x", "[::1", "::1]", "[1.2.3.4", "12345", "0x7f000001", "fe80::%",
     "[]", "[]:80", ":80", "٨.٨.٨.٨", "8.8.8.8\r\nx-evil: 1", "8.8.8.8\0", "for=8.8.8.8", "é", "::ffff:1.2.3.4.5",
     "=" * 65],
)  # fmt: skip
def test_what_is_no_address_is_none(junk):
    assert parse(junk) is None


@given(ADDRESSES, st.integers(1, 65535))
def test_every_address_is_the_same_with_and_without_port_and_brackets(address: Address, port: int):
    bare = parse(str(address))
    assert bare == (getattr(address, "ipv4_mapped", None) or address)
    bracketed = f"[{address}]" if address.version == 6 else str(address)
    assert parse(f"{bracketed}:{port}") == bare
    assert parse(f" {bracketed} ") == bare


@given(st.text(max_size=200))
@example("::ffff:0:0%")
def test_no_text_makes_it_raise(text: str):
    found = parse(text)
    assert found is None or isinstance(found, (IPv4Address, IPv6Address))
    taken(text, source=text, hops=1)
    taken(text, source=text, proxies=("10.0.0.0/8",))


@given(st.text(alphabet="0123456789abcdef.:,[]% _x", max_size=300), ADDRESSES, st.integers(0, 5))
def test_nothing_a_client_writes_on_the_left_changes_the_answer(spoof: str, client: Address, hops: int):
    ours = "".join(f", 10.0.0.{i}" for i in range(hops))
    expected = taken(f"{client}{ours}", hops=hops)
    assert expected == str(getattr(client, "ipv4_mapped", None) or client)
    assert taken(f"{spoof},{client}{ours}", hops=hops) == expected


@contextmanager
def _envoys(folder: Path) -> Iterator[list[int]]:
    """Ports of one Envoy that trusts 0, 1, 2 hops; it says the client and the header as ext_proc sees it."""
    ports = free_ports(3)
    manager = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
    router = {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}
    seen = (("x-client", "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%"), ("x-seen", "%REQ(X-FORWARDED-FOR)%"))
    says = [{"header": {"key": key, "value": value}} for key, value in seen]
    route = {"match": {"prefix": "/"}, "direct_response": {"status": 200}, "response_headers_to_add": says}
    listeners = []
    for hops, port in enumerate(ports):
        connections = {
            "@type": f"type.googleapis.com/{manager}",
            "stat_prefix": "x",
            "use_remote_address": True,
            "xff_num_trusted_hops": hops,
            "http_filters": [{"name": "router", "typed_config": router}],
            "route_config": {"virtual_hosts": [{"name": "x", "domains": ["*"], "routes": [route]}]},
        }
        listeners.append(
            {
                "name": f"hops-{hops}",
                "address": {"socket_address": {"address": "127.0.0.1", "port_value": port}},
                "filter_chains": [{"filters": [{"name": "http", "typed_config": connections}]}],
            }
        )
    path = folder / "envoy.yaml"
    path.write_text(yaml.safe_dump({"static_resources": {"listeners": listeners}}))
    program = Process(
        [envoy.binary(), "-c", path, "--use-dynamic-base-id", "--concurrency", "1", "-l", "warning"],
        folder / "envoy.log",
    )
    try:
        program.until(lambda: all(map(listens, ports)), "envoy")
        yield ports
    finally:
        program.end()


def test_a_real_envoy_takes_the_same_address_at_every_number_of_hops(tmp_path: Path):
    sent = [None, "8.8.8.8", "9.9.9.9, 8.8.8.8", "7.7.7.7, 9.9.9.9, 8.8.8.8", "9.9.9.9, 2001:4860::8"]
    with _envoys(tmp_path) as ports, httpx.Client() as client:
        for hops, port in enumerate(ports):
            for forwarded in sent:
                headers = {} if forwarded is None else {"x-forwarded-for": forwarded}
                answer = client.get(f"http://127.0.0.1:{port}/", headers=headers).headers
                says = ipaddress.ip_address(answer["x-client"])
                # For a peer on its own machine, as ours is, Envoy appends the machine's address instead.
                expected = answer["x-seen"].rpartition(",")[2] if says.is_loopback else str(says)
                assert taken(answer["x-seen"], hops=hops) == expected, (hops, forwarded, answer["x-seen"])
