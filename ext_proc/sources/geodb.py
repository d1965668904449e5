"""One GeoIP database file: whichever layout, always the last good version."""

import asyncio
import logging
import struct
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Any

import maxminddb
from maxminddb import InvalidDatabaseError

from ext_proc.errors import ConfigError
from ext_proc.sources.watched import WatchedFile
from policy.areas import continent_of
from policy.types import Place

log = logging.getLogger(__name__)

_DAMAGE = (InvalidDatabaseError, ValueError, TypeError, LookupError, OverflowError, RecursionError, struct.error)
"""What maxminddb raises on flipped bits (tried: 1,500 damaged files)."""
_NESTED = ("country", "registered_country", "continent", "location")


class GeoDatabase:
    """Read whole into memory, by maxminddb's Python reader.

    A mapped file that somebody overwrites in place is a bus error, and the C extension, which only maps, dies of a
    segmentation fault on damaged data (tried with 3.2). It would take 10 µs instead of 60 for an address not seen yet.
    """

    def __init__(self, path: Path) -> None:
        """Raises ConfigError when there is no usable database."""
        self._path = path
        self._file = WatchedFile(path)
        self._reader = _open(path)
        self.refused = 0
        """New versions that were no usable database; the one before them stays."""
        self.damaged = 0
        """Look-ups that met damaged data."""

    def place(self, address: IPv4Address | IPv6Address) -> Place | None:
        """None: not in the database."""
        if address.version == 6 and self._reader.metadata().ip_version == 4:
            return None
        try:
            record = self._reader.get(address)
        except _DAMAGE:
            self.damaged += 1
            return None
        return _place(record) if isinstance(record, dict) else None

    async def reload(self) -> bool:
        """Open a changed file, swap it in, close the old one. True when another version is in use now."""
        if not self._file.changed():
            return False
        try:
            # In a thread: reading a hundred megabytes would make every request wait.
            reader = await asyncio.to_thread(_open, self._path)
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


def _open(path: Path) -> maxminddb.Reader:
    try:
        reader = maxminddb.open_database(path, maxminddb.MODE_MEMORY)
    except (OSError, *_DAMAGE) as exc:
        raise ConfigError(f"places.databases: {path} is not a readable MaxMind-format database: {exc}") from exc
    kind = str(reader.metadata().database_type)
    if not any(word in kind.lower() for word in ("city", "country", "location", "enterprise")):
        reader.close()
        raise ConfigError(f"places.databases: {path} is a {kind!r} database; a city or country one is needed")
    return reader


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
    latitude, longitude = _degrees(location.get("latitude"), 90.0), _degrees(location.get("longitude"), 180.0)
    if latitude is None or longitude is None:
        latitude = longitude = None
    if code is None and continent is None and latitude is None:
        return None
    return Place(source="address", country=code, continent=continent, latitude=latitude, longitude=longitude)


def _member(record: dict[str, Any], name: str) -> dict[str, Any]:
    value = record.get(name)
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _degrees(value: object, most: float) -> float | None:
    try:
        degrees = float(value) if isinstance(value, (int, float, str)) else None
    except ValueError:  # flat: ""
        return None
    return degrees if degrees is not None and -most <= degrees <= most else None
