"""How a client's place is found."""

import ipaddress
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from policy.areas import continent_of
from policy.types import Continent, Country

HeaderName = Annotated[str, Meta(pattern=r"^[a-z0-9-]{1,64}\Z")]


class EdgeHeader(Struct, frozen=True, forbid_unknown_fields=True):
    """Headers in which a CDN or load balancer of ours says where the client is."""

    country: HeaderName
    """ISO 3166-1; what follows a comma is not read (`US,Mountain View`)."""
    latitude: HeaderName | None = None
    longitude: HeaderName | None = None


class Network(Struct, frozen=True, forbid_unknown_fields=True):
    """Where the clients of one network are: a private one by its addresses, a public one by its number.

    An entry by *asn* stands for whatever databases say of that network; without a place in it, its clients' place is
    not known (clouds and VPNs, whose addresses say nothing of who uses them).
    """

    cidr: str | None = None
    asn: Annotated[int, Meta(ge=1, le=4_294_967_295)] | None = None
    """Needs a database of networks (GeoLite2-ASN, DB-IP ASN) among `places.databases`."""
    region: str | None = None
    zone: str | None = None
    country: Country | None = None
    continent: Continent | None = None
    latitude: Annotated[float, Meta(ge=-90, le=90)] | None = None
    longitude: Annotated[float, Meta(ge=-180, le=180)] | None = None

    def __post_init__(self) -> None:
        if (self.cidr is None) == (self.asn is None):
            raise ValueError("places.networks: give cidr or asn, one of them")
        if self.cidr is not None:
            _cidr("places.networks.cidr", self.cidr)
        if self.country is not None and continent_of(self.country) is None:
            raise ValueError(f"places.networks.country: {self.country!r} is none of ISO 3166-1")


class Places(Struct, frozen=True, forbid_unknown_fields=True):
    """How a client's place is found: edge headers, forwarded address, calling proxy's locality, table of networks,
    in that order."""

    headers: tuple[HeaderName | EdgeHeader, ...] = ()
    """Asked in this order, and believed only from our own proxies (the two settings of trust below)."""
    databases: tuple[Path, ...] = ()
    """MaxMind-format files (GeoLite2, DB-IP, ip-location-db), asked in this order: the first that knows a place counts,
    and the first that knows the network (ASN)."""
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
        if self.headers and not (self.trusted_hops or self.trusted_proxies):
            raise ValueError(
                "places.headers: say whose they are with trusted_hops or trusted_proxies; nobody is believed"
            )

    @property
    def asked(self) -> bool:
        """There is something that can know where a client is."""
        return bool(self.headers or self.databases or self.networks or self.locality)


def _cidr(name: str, value: str) -> None:
    try:
        ipaddress.ip_network(value)
    except ValueError as exc:
        raise ValueError(f"{name}: {exc}") from None
