"""Where the demo's clients are: public networks of universities and laboratories, by their campus."""

import csv
import ipaddress
from pathlib import Path
from random import Random
from typing import NamedTuple

from mmdb_writer import MMDBWriter
from netaddr import IPSet

CONTINENTS = {
    "NA": "North America", "SA": "South America", "EU": "Europe", "AF": "Africa", "AS": "Asia", "OC": "Oceania",
}  # fmt: skip


class Network(NamedTuple):
    """One line of networks.csv."""

    cidr: str
    name: str
    city: str
    country: str
    continent: str
    latitude: float
    longitude: float

    def somebody(self, chance: Random) -> str:
        """An address in it."""
        network = ipaddress.ip_network(self.cidr)
        return str(network[chance.randrange(1, network.num_addresses - 1)])


def networks() -> list[Network]:
    """All of them."""
    with (Path(__file__).parent / "networks.csv").open(newline="") as rows:
        return [
            Network(**{**row, "latitude": float(row["latitude"]), "longitude": float(row["longitude"])})  # type: ignore[arg-type]
            for row in csv.DictReader(rows)
        ]


def write_database(path: Path) -> None:
    """The same as a file in GeoLite2's shape."""
    writer = MMDBWriter(4, "GeoLite2-City", languages=["en"], description="Isogloss demo: a few public networks")
    for network in networks():
        record = {
            "continent": {"code": network.continent, "names": {"en": CONTINENTS[network.continent]}},
            "country": {"iso_code": network.country},
            "city": {"names": {"en": network.city}},
            "location": {"latitude": network.latitude, "longitude": network.longitude},
        }
        writer.insert_network(IPSet([network.cidr]), record)
    writer.to_db_file(str(path))
