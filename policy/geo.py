"""How far each node is from the client."""

import numpy as np

from policy.types import Bools, Fleet, Floats, Place

EARTH_KM = 6371.0
RTT_MS_PER_KM = 0.01
"""Light in fibre covers about 200 km a millisecond, and the way is there and back."""


def distances_km(place: Place | None, fleet: Fleet) -> Floats | None:
    """Great-circle distance to every node, [n] km; NaN where a node has no coordinates; None: nothing to say."""
    origin = _origin(place, fleet)
    if origin is None:
        return None
    cosine = np.clip(fleet.positions @ origin, -1.0, 1.0)
    return EARTH_KM * np.arccos(cosine)


def same_continent(place: Place | None, fleet: Fleet) -> Bools | None:
    """Which nodes are on the client's continent; None: unknown, or no node says where it is."""
    if place is None:
        return None
    if place.continent is not None:
        return fleet.continents.get(place.continent)
    return None


def rings(km: Floats, near_km: float) -> Floats:
    """Whole soft radii beyond the nearest node: 0 for all that count as equally near, [n].

    A node of unknown distance gets the median ring: it neither wins nor loses by it.
    """
    known = km[~np.isnan(km)]
    if known.size == 0:
        return np.zeros_like(km)
    out = np.ceil(np.maximum(0.0, km - known.min() - near_km) / near_km)
    if known.size < km.size:
        out = np.where(np.isnan(out), np.median(out[~np.isnan(out)]), out)
    return out  # type: ignore[no-any-return]


def _origin(place: Place | None, fleet: Fleet) -> Floats | None:
    """The client as a unit vector: by its coordinates, else by where the fleet's region of that name lies."""
    if place is None:
        return None
    if place.latitude is not None and place.longitude is not None:
        lat, lon = np.radians((place.latitude, place.longitude))
        return np.array((np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)))
    if place.region is None or place.region not in fleet.regions:
        return None
    there = fleet.positions[fleet.regions[place.region]]
    there = there[~np.isnan(there).any(axis=1)]
    if there.shape[0] == 0:
        return None
    middle = there.sum(axis=0)
    return middle / np.linalg.norm(middle)  # type: ignore[no-any-return]
