"""One GeoIP database file: whichever layout, always the last good version."""

import logging
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Any

import maxminddb
from maxminddb import InvalidDatabaseError

from ext_proc.errors import ConfigError
from ext_proc.sources.continents import continent_of
from policy.types import Place

log = logging.getLogger(__name__)


class GeoDatabase:
    """A file read whole into memory: a mapped one that is overwritten in place is a bus error, not an exception."""

    def __init__(self, path: Path) -> None:
        """Raises ConfigError when there is no usable database."""
        self._path = path
        self._stamp = _stamp(path)
        self._reader = _open(path)
        self.refused = 0
        """New versions that were no usable database; the one before them stays."""

    def place(self, address: IPv4Address | IPv6Address) -> Place | None:
        """None: not in the database."""
        if address.version == 6 and self._reader.metadata().ip_version == 4:
            return None
        record = self._reader.get(address)
        return _place(record) if isinstance(record, dict) else None

    def reload(self) -> bool:
        """Open a changed file, swap it in, close the old one. True when another version is in use now."""
        stamp = _stamp(self._path)
        if stamp == self._stamp:
            return False
        self._stamp = stamp
        try:
            reader = _open(self._path)
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
    except (OSError, InvalidDatabaseError, ValueError) as exc:
        raise ConfigError(f"places.databases: {path} is not a readable MaxMind-format database: {exc}") from exc
    kind = reader.metadata().database_type
    if not any(word in kind.lower() for word in ("city", "country", "location", "enterprise")):
        reader.close()
        raise ConfigError(f"places.databases: {path} is a {kind!r} database; a city or country one is needed")
    return reader


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


def _place(record: dict[str, Any]) -> Place | None:
    """Nested (GeoLite2, DB-IP) or flat (ip-location-db); in the flat layout an empty string means absent."""
    country = record.get("country") or record.get("registered_country")
    if isinstance(country, dict):
        location = _member(record, "location")
        code = _text(country.get("iso_code"))
        continent = _text(_member(record, "continent").get("code")) or continent_of(code)
    else:
        location = record
        code = _text(record.get("country_code"))
        continent = continent_of(code)
    latitude, longitude = _number(location.get("latitude")), _number(location.get("longitude"))
    if code is None and latitude is None:
        return None
    return Place(
        source="address",
        country=code,
        continent=continent,
        latitude=latitude if longitude is not None else None,
        longitude=longitude if latitude is not None else None,
    )


def _member(record: dict[str, Any], name: str) -> dict[str, Any]:
    value = record.get(name)
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _number(value: object) -> float | None:
    try:
        return float(value) if isinstance(value, (int, float, str)) and value != "" else None
    except ValueError:
        return None
