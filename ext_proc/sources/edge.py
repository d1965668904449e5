"""Where the client is in the words of a proxy of ours: a CDN or load balancer that looked it up and set headers."""

from collections.abc import Mapping

from ext_proc.config import EdgeHeader
from policy.areas import continent_of
from policy.types import Place

MAX_CHARACTERS = 128
"""Of a header's value; longer is no country, and no number."""


def place(headers: Mapping[str, str], edge: EdgeHeader) -> Place | None:
    """None when the header names no country (absent, XX, T1, junk); half a position is none. Never raises."""
    country = _country(headers.get(edge.country, ""))
    if country is None:
        return None
    latitude = _coordinate(headers, edge.latitude, 90.0)
    longitude = _coordinate(headers, edge.longitude, 180.0)
    if latitude is None or longitude is None:
        latitude = longitude = None
    return Place(
        source=f"header {edge.country}",
        country=country,
        continent=continent_of(country),
        latitude=latitude,
        longitude=longitude,
    )


def degrees(value: object, most: float) -> float | None:
    """A number between -*most* and *most*, or the text of one."""
    try:
        found = float(value) if isinstance(value, (int, float, str)) else None
    except (ValueError, OverflowError):  # flat databases: ""
        return None
    return found if found is not None and -most <= found <= most else None


def _country(value: str) -> str | None:
    """Two countries are a header that came twice, from the client too: nobody knows which is true."""
    if len(value) > MAX_CHARACTERS:
        return None
    entries = [entry.strip() for entry in value.split(",")]
    known = [entry for entry in entries if continent_of(entry) is not None]
    return known[0] if known == entries[:1] else None


def _coordinate(headers: Mapping[str, str], name: str | None, most: float) -> float | None:
    value = "" if name is None else headers.get(name, "")
    return degrees(value, most) if len(value) <= MAX_CHARACTERS else None
