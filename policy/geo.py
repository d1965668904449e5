"""How far each node is from the client."""

import math

import numpy as np

from policy.types import Bools, Fleet, Floats, Place

EARTH_KM = 6371.0
RTT_MS_PER_KM = 0.01
"""Light in fibre covers about 200 km a millisecond, and the way is there and back."""


def origin(place: Place | None, fleet: Fleet) -> Floats | None:
    """The client as a unit vector: by its coordinates, else by where the fleet's region of that name lies.

    None: nothing to say.
    """
    if place is None:
        return None
    if place.latitude is not None and place.longitude is not None:
        lat, lon = math.radians(place.latitude), math.radians(place.longitude)
        return np.array((math.cos(lat) * math.cos(lon), math.cos(lat) * math.sin(lon), math.sin(lat)))
    if place.region is None or place.region not in fleet.regions:
        return None
    there = fleet.positions[fleet.regions[place.region]]
    there = there[~np.isnan(there).any(axis=1)]
    if there.shape[0] == 0:
        return None
    middle = there.sum(axis=0)
    return middle / np.linalg.norm(middle)  # type: ignore[no-any-return]


def distances_km(start: Floats, positions: Floats) -> Floats:
    """Great-circle distance from one unit vector to each of *positions* [m, 3], in km [m]; NaN where one is unknown."""
    cosine = positions @ start
    np.minimum(cosine, 1.0, out=cosine)  # rounding can take a cosine a hair above 1, where arccos has no answer
    np.maximum(cosine, -1.0, out=cosine)
    return EARTH_KM * np.arccos(cosine)


def distance_km(start: Floats, position: Floats) -> float:
    """The same for one position [3]."""
    cosine = float(start[0] * position[0] + start[1] * position[1] + start[2] * position[2])
    return math.nan if math.isnan(cosine) else EARTH_KM * math.acos(max(-1.0, min(1.0, cosine)))


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
    nearest = np.fmin.reduce(km)  # NaN only when all are
    if math.isnan(nearest):
        return np.zeros_like(km)
    out = np.ceil((km - (nearest + near_km)) / near_km)
    np.maximum(out, 0.0, out=out)
    unknown = np.isnan(out)
    if np.count_nonzero(unknown):
        out[unknown] = np.median(out[~unknown])
    return out  # type: ignore[no-any-return]
