"""Where a client is: in a proxy's words, by its address, by the proxy that calls for it, or by a table of networks."""

import asyncio
import ipaddress
from collections import OrderedDict
from collections.abc import Mapping

from msgspec import structs

from ext_proc import config, names
from ext_proc.errors import ConfigError
from ext_proc.sources import edge
from ext_proc.sources.address import Address, by_our_proxy, client_address
from ext_proc.sources.geodb import GeoDatabase
from policy.areas import continent_of
from policy.types import Place

POLL_S = 2.0


class Places:
    """No database configured: the others still work, and without them a place is simply not known."""

    def __init__(self, settings: config.Places) -> None:
        """Raises ConfigError when a database cannot be used."""
        self._settings = settings
        self._edges = [_edge(header) for header in settings.headers]
        self._databases = [GeoDatabase(path) for path in settings.databases]
        self._table = sorted(
            ((ipaddress.ip_network(row.cidr), _listed(row)) for row in settings.networks if row.cidr is not None),
            key=lambda row: row[0].prefixlen,
            reverse=True,
        )
        self._by_asn = {row.asn: _listed(row) for row in settings.networks if row.asn is not None}
        if self._by_asn and not any(database.kind == "networks" for database in self._databases):
            raise ConfigError("places.networks: an entry by asn needs a database of networks in places.databases")
        self._known: OrderedDict[Address, Place | None] = OrderedDict()

    def address(self, headers: Mapping[str, str], attributes: Mapping[str, str]) -> Address | None:
        """The client's address, as far as it can be trusted."""
        return client_address(headers, attributes, self._settings)

    def place(self, headers: Mapping[str, str], attributes: Mapping[str, str]) -> Place | None:
        """Never raises; what nobody knows is None, not the middle of the ocean."""
        if self._edges and (found := self._by_edge(headers, attributes)) is not None:
            return found
        address = self.address(headers, attributes)
        found = None if address is None else self._looked_up(address)
        if found is not None and _is_somewhere(found):
            return found
        if self._settings.locality:
            region, zone = attributes.get(names.LOCALITY_REGION), attributes.get(names.LOCALITY_ZONE)
            if region or zone:
                return Place(source="locality", region=region or None, zone=zone or None)
        if address is not None:
            return next((place for network, place in self._table if address in network), found)
        return None

    @property
    def refused(self) -> int:
        """New versions of databases that were none; the ones before them stay."""
        return sum(database.refused for database in self._databases)

    @property
    def damaged(self) -> int:
        """Look-ups that met damaged data."""
        return sum(database.damaged for database in self._databases)

    async def watch(self, poll_s: float = POLL_S) -> None:
        """Read databases again when their files change, for ever."""
        while True:
            await asyncio.sleep(poll_s)
            for database in self._databases:
                if await database.reload():
                    self._known.clear()

    def _by_edge(self, headers: Mapping[str, str], attributes: Mapping[str, str]) -> Place | None:
        if not by_our_proxy(headers, attributes, self._settings):
            return None
        return next((place for header in self._edges if (place := edge.place(headers, header)) is not None), None)

    def _looked_up(self, address: Address) -> Place | None:
        if not self._databases or not address.is_global or address.is_multicast:
            return None  # private, shared (CGNAT), documentation: no place on the map, whatever a database says
        if address in self._known:
            self._known.move_to_end(address)
            return self._known[address]
        found = self._in_databases(address)
        self._known[address] = found
        if len(self._known) > self._settings.cache:
            self._known.popitem(last=False)
        return found

    def _in_databases(self, address: Address) -> Place | None:
        """The place, with the network it is in; or what our own table says of that network."""
        places = (db.place(address) for db in self._databases if db.kind == "places")
        networks = (db.network(address) for db in self._databases if db.kind == "networks")
        found = next((place for place in places if place is not None), None)
        asn, organisation = next((network for network in networks if network is not None), (None, None))
        if asn is None:
            return found
        found = self._by_asn.get(asn, found) or Place(source="address")
        return structs.replace(found, asn=asn, organisation=organisation)


def _is_somewhere(place: Place) -> bool:
    return any(known is not None for known in (place.country, place.continent, place.latitude, place.region))


def _edge(header: str | config.EdgeHeader) -> config.EdgeHeader:
    return config.EdgeHeader(country=header) if isinstance(header, str) else header


def _listed(network: config.Network) -> Place:
    return Place(
        source="network table",
        region=network.region,
        zone=network.zone,
        country=network.country,
        continent=network.continent or continent_of(network.country),
        latitude=network.latitude,
        longitude=network.longitude,
    )
