"""How far each node is from the client."""

import math

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
    # Rounding can take a cosine a hair above 1, where arccos has no answer.
    cosine = np.minimum(fleet.positions @ origin, 1.0)
    return EARTH_KM * np.arccos(np.maximum(cosine, -1.0))


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
    if unknown.any():
        out[unknown] = np.median(out[~unknown])
    return out  # type: ignore[no-any-return]


def _origin(place: Place | None, fleet: Fleet) -> Floats | None:
    """The client as a unit vector: by its coordinates, else by where the fleet's region of that name lies."""
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
