"""The client's address: the rightmost one that nobody but our own proxies can have written.

X-Forwarded-For grows to the right: each proxy appends the address it was connected from, so whatever a client made up
stands on the left. `trusted_hops` counts our own proxies *in front of* this Envoy, as Envoy's `xff_num_trusted_hops`
does; this Envoy itself (`use_remote_address: true`, as we generate it) appends the last entry before we see it.
A client that sends `X-Forwarded-For: spoof`:

    in front of this Envoy     trusted_hops   header we see                     taken
    nothing                    0              spoof, client                     client
    a load balancer            1              spoof, client, balancer           client
    a CDN and a balancer       2              spoof, client, cdn, balancer      client

Too high a number believes what a client wrote; too low a one takes our own proxy for the client; a header shorter than
the number came past the proxies, and its last entry counts (as in Envoy). Without the header Envoy's own
`source.address` counts. For a client on Envoy's own machine (a sidecar's) Envoy writes the machine's address, not
127.0.0.1.
"""

import ipaddress
import re
from collections.abc import Mapping
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

from ext_proc import names
from ext_proc.config import Places

Address = IPv4Address | IPv6Address
MAX_ENTRIES = 32
"""Entries looked at, from the right."""
MAX_BYTES = 4096
MAX_ADDRESS = 64
"""Characters: a full IPv6 address in brackets, with a zone and a port."""
_BRACKETED = re.compile(r"\[([0-9A-Fa-f:.]+(?:%[^\]]*)?)\](?::[0-9]{1,5})?")
_WITH_PORT = re.compile(r"([0-9.]+):[0-9]{1,5}")


def client_address(headers: Mapping[str, str], attributes: Mapping[str, str], settings: Places) -> Address | None:
    """Never the leftmost entry for being leftmost; None when the entry that counts is no address."""
    forwarded = headers.get("x-forwarded-for", "")
    if not forwarded:
        return parse(attributes.get(names.SOURCE_ADDRESS, ""))
    entries = _from_the_right(forwarded)
    if settings.trusted_proxies:
        return _outside(entries, settings.trusted_proxies)
    # Fewer entries than hops: the request came past our proxies, and the last entry, which Envoy wrote, is true.
    return parse(entries[settings.trusted_hops] if settings.trusted_hops < len(entries) else entries[0])


def by_our_proxy(headers: Mapping[str, str], attributes: Mapping[str, str], settings: Places) -> bool:
    """Whether a proxy of ours connected to this Envoy, so that what it says of the client counts.

    With `trusted_proxies` by its address, which Envoy itself wrote last; with `trusted_hops` by the number of entries,
    which only holds where clients cannot reach Envoy past the proxies.
    """
    forwarded = headers.get("x-forwarded-for", "")
    entries = _from_the_right(forwarded) if forwarded else [attributes.get(names.SOURCE_ADDRESS, "")]
    if settings.trusted_proxies:
        return (peer := parse(entries[0])) is not None and any(
            peer in ours for ours in networks(settings.trusted_proxies)
        )
    return 0 < settings.trusted_hops < len(entries)


def parse(text: str) -> Address | None:
    """One address, with or without port, brackets or zone; IPv4-mapped IPv6 unwrapped; None for anything else."""
    text = text.strip().strip('"')
    # Before the cache, which would otherwise remember kilobytes of a client's making.
    return _parsed(text) if len(text) <= MAX_ADDRESS else None


@lru_cache(maxsize=65_536)
def _parsed(text: str) -> Address | None:
    spelled = _BRACKETED.fullmatch(text) or _WITH_PORT.fullmatch(text)
    try:
        address = ipaddress.ip_address(spelled[1] if spelled else text)
    except ValueError:
        return None
    if isinstance(address, IPv4Address):
        return address
    # The zone means something to the host that wrote it and to nobody else.
    return address.ipv4_mapped or IPv6Address(int(address))


def _outside(entries: list[str], proxies: tuple[str, ...]) -> Address | None:
    """The rightmost address that is none of our proxies; an entry that is no address ends the trust."""
    ours = networks(proxies)
    for entry in entries:
        address = parse(entry)
        if address is None or not any(address in network for network in ours):
            return address
    return None


def _from_the_right(header: str) -> list[str]:
    entries = header[-MAX_BYTES:].split(",")
    if len(header) > MAX_BYTES:
        entries[0] = ""  # cut in two
    return entries[: -MAX_ENTRIES - 1 : -1]


@lru_cache(maxsize=64)
def networks(cidrs: tuple[str, ...]) -> tuple[IPv4Network | IPv6Network, ...]:
    """The networks of a setting, made once."""
    return tuple(ipaddress.ip_network(cidr) for cidr in cidrs)
