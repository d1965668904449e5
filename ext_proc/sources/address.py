"""The client's address: the rightmost one that nobody but our own proxies can have written.

X-Forwarded-For grows to the right: each proxy appends the address it was connected from, so whatever a client sent
stands on the left. `trusted_hops` counts our own proxies in front of this Envoy (as Envoy's `xff_num_trusted_hops`);
this Envoy itself appends one entry more. With the header `spoof, client, edge`:

    trusted_hops 0 → edge      (clients connect to this Envoy)
    trusted_hops 1 → client    (one load balancer of ours in front)
"""

import ipaddress
from collections.abc import Iterator, Mapping
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

from ext_proc import names
from ext_proc.config import Places

Address = IPv4Address | IPv6Address
MAX_ENTRIES = 32
"""Entries looked at, from the right."""
MAX_BYTES = 4096


def client_address(headers: Mapping[str, str], attributes: Mapping[str, str], settings: Places) -> Address | None:
    """Never the leftmost entry for being leftmost; None when the entry that counts is no address."""
    forwarded = headers.get("x-forwarded-for", "")
    if not forwarded:
        return parse(attributes.get(names.SOURCE_ADDRESS, ""))
    entries = _from_the_right(forwarded)
    if settings.trusted_proxies:
        return _outside(entries, settings.trusted_proxies)
    for _ in range(settings.trusted_hops):
        if next(entries, None) is None:
            return None
    return parse(next(entries, ""))


def parse(text: str) -> Address | None:
    """One address, with or without port, brackets or zone; IPv4-mapped IPv6 unwrapped; None for anything else."""
    text = text.strip().strip('"')
    if len(text) > 64:
        return None
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def _outside(entries: Iterator[str], proxies: tuple[str, ...]) -> Address | None:
    """The rightmost address that is none of our proxies; an entry that is no address ends the trust."""
    ours = networks(proxies)
    for entry in entries:
        address = parse(entry)
        if address is None or not any(address in network for network in ours):
            return address
    return None


def _from_the_right(header: str) -> Iterator[str]:
    entries = header[-MAX_BYTES:].split(",")
    if len(header) > MAX_BYTES:
        entries[0] = ""  # cut in two
    return iter([entry.strip() for entry in reversed(entries)][:MAX_ENTRIES])


@lru_cache(maxsize=64)
def networks(cidrs: tuple[str, ...]) -> tuple[IPv4Network | IPv6Network, ...]:
    """The networks of a setting, made once."""
    return tuple(ipaddress.ip_network(cidr) for cidr in cidrs)
