"""How a client's place is found."""

import ipaddress
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct


class Network(Struct, frozen=True, forbid_unknown_fields=True):
    """Where clients of one private network are."""

    cidr: str
    region: str | None = None
    zone: str | None = None
    country: str | None = None
    continent: str | None = None
    latitude: Annotated[float, Meta(ge=-90, le=90)] | None = None
    longitude: Annotated[float, Meta(ge=-180, le=180)] | None = None

    def __post_init__(self) -> None:
        _cidr("places.networks.cidr", self.cidr)


class Places(Struct, frozen=True, forbid_unknown_fields=True):
    """How a client's place is found: forwarded address, calling proxy's locality, table of networks, in that order."""

    databases: tuple[Path, ...] = ()
    """MaxMind-format files (GeoLite2, DB-IP, ip-location-db); none: places come from the other two only."""
    trusted_hops: Annotated[int, Meta(ge=0, le=10)] = 0
    """Our own proxies in front of this Envoy, as Envoy's `xff_num_trusted_hops`; table in sources/address.py."""
    trusted_proxies: tuple[str, ...] = ()
    """Or: networks of our proxies; the client is the rightmost address outside them."""
    networks: tuple[Network, ...] = ()
    locality: bool = False
    """Believe the calling proxy's own locality (sidecars; never at a gateway)."""
    cache: Annotated[int, Meta(ge=0, le=10_000_000)] = 65_536

    def __post_init__(self) -> None:
        for cidr in self.trusted_proxies:
            _cidr("places.trusted_proxies", cidr)
        if self.trusted_hops and self.trusted_proxies:
            raise ValueError("places: give trusted_hops or trusted_proxies, not both")


def _cidr(name: str, value: str) -> None:
    try:
        ipaddress.ip_network(value)
    except ValueError as exc:
        raise ValueError(f"{name}: {exc}") from None
