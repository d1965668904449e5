"""Where a client is: by its address, by the proxy that calls for it, or by a table of private networks."""

import asyncio
import ipaddress
from collections import OrderedDict
from collections.abc import Mapping

from ext_proc import config, names
from ext_proc.sources.address import Address, client_address
from ext_proc.sources.geodb import GeoDatabase
from policy.types import Place

POLL_S = 2.0


class Places:
    """No database configured: the other two still work, and without them a place is simply not known."""

    def __init__(self, settings: config.Places) -> None:
        """Raises ConfigError when a database cannot be used."""
        self._settings = settings
        self._databases = [GeoDatabase(path) for path in settings.databases]
        self._table = sorted(
            ((ipaddress.ip_network(network.cidr), _listed(network)) for network in settings.networks),
            key=lambda row: row[0].prefixlen,
            reverse=True,
        )
        self._known: OrderedDict[Address, Place | None] = OrderedDict()

    def address(self, headers: Mapping[str, str], attributes: Mapping[str, str]) -> Address | None:
        """The client's address, as far as it can be trusted."""
        return client_address(headers, attributes, self._settings)

    def place(self, headers: Mapping[str, str], attributes: Mapping[str, str]) -> Place | None:
        """Never raises; what nobody knows is None, not the middle of the ocean."""
        address = self.address(headers, attributes)
        if address is not None and (found := self._looked_up(address)) is not None:
            return found
        if self._settings.locality:
            region, zone = attributes.get(names.LOCALITY_REGION), attributes.get(names.LOCALITY_ZONE)
            if region or zone:
                return Place(source="locality", region=region or None, zone=zone or None)
        if address is not None:
            return next((place for network, place in self._table if address in network), None)
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

    def _looked_up(self, address: Address) -> Place | None:
        if not self._databases or not address.is_global or address.is_multicast:
            return None  # private, shared (CGNAT), documentation: no place on the map, whatever a database says
        if address in self._known:
            self._known.move_to_end(address)
            return self._known[address]
        found = next((place for db in self._databases if (place := db.place(address)) is not None), None)
        self._known[address] = found
        if len(self._known) > self._settings.cache:
            self._known.popitem(last=False)
        return found


def _listed(network: config.Network) -> Place:
    return Place(
        source="network table",
        region=network.region,
        zone=network.zone,
        country=network.country,
        continent=network.continent,
        latitude=network.latitude,
        longitude=network.longitude,
    )
