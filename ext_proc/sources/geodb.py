"""One GeoIP database file: whichever layout, always the last good version."""

import asyncio
import logging
import struct
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Any, Literal

import maxminddb
from maxminddb import InvalidDatabaseError

from ext_proc.errors import ConfigError
from ext_proc.sources.edge import degrees
from ext_proc.sources.watched import WatchedFile
from policy.areas import continent_of
from policy.types import Place

log = logging.getLogger(__name__)

_DAMAGE = (InvalidDatabaseError, ValueError, TypeError, LookupError, OverflowError, RecursionError, struct.error)
"""What maxminddb raises on flipped bits (tried: 1,500 damaged files)."""
_NESTED = ("country", "registered_country", "continent", "location")
_KINDS: tuple[tuple[str, "Kind"], ...] = (
    ("city", "places"), ("country", "places"), ("location", "places"), ("enterprise", "places"),
    ("asn", "networks"), ("isp", "networks"),
)  # fmt: skip
"""By a word in the database's own type, the first that is found."""

Kind = Literal["places", "networks"]
"""What a database knows of an address: where it is, or whose (ASN)."""


class GeoDatabase:
    """Read whole into memory, by maxminddb's Python reader.

    A mapped file that somebody overwrites in place is a bus error, and the C extension, which only maps, dies of a
    segmentation fault on damaged data (tried with 3.2). It would take 10 µs instead of 60 for an address not seen yet.
    """

    def __init__(self, path: Path) -> None:
        """Raises ConfigError when there is no usable database."""
        self._path = path
        self._file = WatchedFile(path)
        self._reader, self.kind = _open(path)
        self.refused = 0
        """New versions that were no usable database; the one before them stays."""
        self.damaged = 0
        """Look-ups that met damaged data."""

    def place(self, address: IPv4Address | IPv6Address) -> Place | None:
        """None: not in the database."""
        record = self._record(address)
        return None if record is None else _place(record)

    def network(self, address: IPv4Address | IPv6Address) -> tuple[int, str | None] | None:
        """Number and organisation; None: not in the database."""
        record = self._record(address)
        return None if record is None else _network(record)

    def _record(self, address: IPv4Address | IPv6Address) -> dict[str, Any] | None:
        if address.version == 6 and self._reader.metadata().ip_version == 4:
            return None
        try:
            record = self._reader.get(address)
        except _DAMAGE:
            self.damaged += 1
            return None
        return record if isinstance(record, dict) else None

    async def reload(self) -> bool:
        """Open a changed file, swap it in, close the old one. True when another version is in use now."""
        if not self._file.changed():
            return False
        try:
            # In a thread: reading a hundred megabytes would make every request wait.
            reader, kind = await asyncio.to_thread(_open, self._path)
            if kind != self.kind:
                reader.close()
                raise ConfigError(f"places.databases: {self._path} is one of {kind} now; it was one of {self.kind}")
        except ConfigError as exc:
            self.refused += 1
            log.warning("places: keeping the database we have: %s", exc)
            return False
        self._reader, old = reader, self._reader
        old.close()
        log.info("places: %s read again", self._path)
        return True

    def close(self) -> None:
        """Free the memory."""
        self._reader.close()


def _open(path: Path) -> tuple[maxminddb.Reader, Kind]:
    try:
        reader = maxminddb.open_database(path, maxminddb.MODE_MEMORY)
    except (OSError, *_DAMAGE) as exc:
        raise ConfigError(f"places.databases: {path} is not a readable MaxMind-format database: {exc}") from exc
    named = str(reader.metadata().database_type)
    for word, kind in _KINDS:
        if word in named.lower():
            return reader, kind
    reader.close()
    raise ConfigError(f"places.databases: {path} is a {named!r} database; a city, country or ASN one is needed")


def _place(record: dict[str, Any]) -> Place | None:
    """Nested (GeoLite2, DB-IP) or flat (ip-location-db); in the flat layout an empty string means absent."""
    if any(isinstance(record.get(name), dict) for name in _NESTED):
        location = _member(record, "location")
        code = _text(_member(record, "country").get("iso_code"))
        code = code or _text(_member(record, "registered_country").get("iso_code"))
        continent = _text(_member(record, "continent").get("code")) or continent_of(code)
    else:
        location = record
        code = _text(record.get("country_code"))
        continent = continent_of(code)
    if continent_of(code) is None:
        code = None  # ZZ, EU, AP: no country, and a rule that asks for one must not take it for another
    latitude, longitude = degrees(location.get("latitude"), 90.0), degrees(location.get("longitude"), 180.0)
    if latitude is None or longitude is None:
        latitude = longitude = None
    if code is None and continent is None and latitude is None:
        return None
    return Place(source="address", country=code, continent=continent, latitude=latitude, longitude=longitude)


def _network(record: dict[str, Any]) -> tuple[int, str | None] | None:
    number = record.get("autonomous_system_number")
    if isinstance(number, str) and number.isascii() and number.isdigit():  # flat: text
        number = int(number[:10])
    if not isinstance(number, int) or not 0 < number < 2**32:
        return None
    return number, _text(record.get("autonomous_system_organization"))


def _member(record: dict[str, Any], name: str) -> dict[str, Any]:
    value = record.get(name)
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
