"""The requests of a run: drawn from a scenario's laws, or recorded ones."""

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct

from policy.simulate.nodes import Job
from policy.simulate.scenario import Draw, Load, Prefixes, Region
from policy.types import Floats, Indices


class Recorded(Struct, frozen=True):
    """A line of a trace: *timestamp* in ms, lengths in tokens, blocks by ids that name all before them too."""

    timestamp: float
    input_length: int
    output_length: int
    hash_ids: tuple[int, ...]


def jobs(
    load: Load, regions: Sequence[Region], seconds: float, level: float, block_tokens: int, random: np.random.Generator
) -> Iterator[Job]:
    """Requests of *seconds*, in order of arrival, at *level* times the load's rate."""
    times = _times(load, seconds, level, random)
    prompts, outputs = _draws(load.prompt, times.size, random), _draws(load.output, times.size, random)
    services = _draws(load.service, times.size, random)
    homes = _pick([region.clients for region in regions], times.size, random)
    intents = _pick([intent.share for intent in load.intents], times.size, random)
    prefixes = _prefixes(load.prefixes, times.size, random)
    new = itertools.count(1 << 40)
    lengths = {
        i: _draws(intent.output, times.size, random)
        for i, intent in enumerate(load.intents)
        if intent.output is not None
    }
    for i, at in enumerate(times):
        intent = int(intents[i])
        job = Job(
            at=float(at),
            service_s=float(services[i]),
            prompt_tokens=int(prompts[i]),
            output_tokens=int(lengths[intent][i] if intent in lengths else outputs[i]),
            intent=load.intents[intent].name if intent >= 0 else None,
            pool=load.intents[intent].pool if intent >= 0 else None,
            region=int(homes[i]),
        )
        shared = load.prefixes.tokens // block_tokens if load.prefixes is not None and prefixes[i] >= 0 else 0
        if load.prefixes is not None:
            job.prompt_tokens += shared * block_tokens
            first = int(prefixes[i]) << 20
            rest = (job.prompt_tokens - shared * block_tokens) // block_tokens
            job.blocks = (*range(first, first + shared), *itertools.islice(new, rest))
        yield job


def replayed(trace: Sequence[Recorded], seconds: float, level: float) -> Iterator[Job]:
    """Recorded requests; at *level* 2 they come twice as fast."""
    for line in trace:
        at = line.timestamp / 1000.0 / level
        if at < seconds:
            yield Job(
                at=at, prompt_tokens=line.input_length, output_tokens=line.output_length, blocks=tuple(line.hash_ids)
            )


def _times(load: Load, seconds: float, level: float, random: np.random.Generator) -> Floats:
    rate = load.requests_per_s * level
    if load.arrivals == "even":
        return load.start_s + np.arange(math.floor(seconds * rate)) / rate
    many = int(seconds * rate + 6.0 * math.sqrt(seconds * rate) + 16)
    times: Floats = load.start_s + np.cumsum(random.exponential(1.0 / rate, many))
    return times[times < load.start_s + seconds]


def _draws(law: Draw | None, size: int, random: np.random.Generator) -> Floats:
    """Numbers above 0; zeros where there is no law."""
    if law is None:
        return np.zeros(size)
    match law.law:
        case "constant":
            return np.full(size, law.mean)
        case "exponential":
            return random.exponential(law.mean, size)
        case "normal":  # as a draw below nothing makes no sense, it counts as hardly anything
            return np.maximum(random.normal(law.mean, law.sd, size), law.mean * 1e-3)
        case "lognormal":
            spread = math.log1p((law.sd / law.mean) ** 2)
            return random.lognormal(math.log(law.mean) - spread / 2.0, math.sqrt(spread), size)


def _pick(shares: Sequence[float], size: int, random: np.random.Generator) -> Indices:
    """Indices by share; -1 where there is nothing to pick from."""
    if not shares:
        return np.full(size, -1, dtype=np.intp)
    weights = np.array(shares) / sum(shares)
    return random.choice(len(shares), size=size, p=weights).astype(np.intp)


def _prefixes(law: Prefixes | None, size: int, random: np.random.Generator) -> Indices:
    if law is None:
        return np.full(size, -1, dtype=np.intp)
    found = _pick([1.0 / rank**law.zipf for rank in range(1, law.count + 1)], size, random)
    found[random.random(size) >= law.repeated] = -1
    return found
