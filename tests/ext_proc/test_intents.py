"""Encoding beside the event loop: bounded, shared, remembered."""

import asyncio
import os
import sys
import threading

import numpy as np
import pytest

from ext_proc.errors import SourceDown
from ext_proc.sources.intents import Intents
from models import bundle
from models.clusters import Clusters
from models.embedder import Embedding

CLUSTERS = Clusters(bundle.load())
DIM = CLUSTERS.dim


class Held:
    """An encoder that waits to be let go, and counts."""

    dim = DIM

    def __init__(self) -> None:
        self.go = threading.Event()
        self.calls: list[str] = []

    def embed(self, text: str) -> Embedding:
        self.calls.append(text)
        self.go.wait(10)
        vector = np.zeros(DIM, dtype=np.float32)
        vector[len(text) % DIM] = 1.0
        return Embedding(vector, known=0 if text == "☃" else 3, truncated=len(text) > 5)


def intents(encoder: Held, **changes: int) -> Intents:
    return Intents(lambda: encoder, CLUSTERS, **{"threads": 2, "queue": 2, "cache": 3, **changes})  # type: ignore[arg-type]


def soon() -> float:
    return asyncio.get_running_loop().time() + 5.0


async def test_the_event_loop_goes_on_while_a_text_is_encoded():
    encoder = Held()
    source = intents(encoder)
    running = source.begin("a", soon())
    for _ in range(100):
        await asyncio.sleep(0)
    assert not running.done()
    encoder.go.set()
    assert (await running) is not None
    assert source.known("a") == await running
    source.close()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a thread has its process's priority")
async def test_encoding_gives_way_to_the_event_loop():
    class Ranked(Held):
        def embed(self, text: str) -> Embedding:
            self.priority = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
            return super().embed(text)

    encoder = Ranked()
    encoder.go.set()
    source = intents(encoder)
    await source.begin("a", soon())
    assert encoder.priority > os.getpriority(os.PRIO_PROCESS, 0)
    source.close()


async def test_equal_texts_share_one_run_and_its_answer_outlives_who_waited():
    encoder = Held()
    source = intents(encoder)
    first, second = source.begin("a", soon()), source.begin("a", soon())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await asyncio.shield(first)
    encoder.go.set()
    await second
    assert encoder.calls == ["a"]
    assert "a" in source
    source.close()


async def test_a_full_queue_says_so_at_once():
    encoder = Held()
    source = intents(encoder)
    running = [source.begin(text, soon()) for text in "abcd"]
    with pytest.raises(SourceDown):
        source.begin("e", soon())
    encoder.go.set()
    await asyncio.gather(*running)
    await source.begin("e", soon())
    source.close()


async def test_the_least_recently_asked_text_is_forgotten_first():
    encoder = Held()
    encoder.go.set()
    source = intents(encoder)
    for text in "abc":
        await source.begin(text, soon())
    source.known("a")
    await source.begin("d", soon())
    assert [text for text in "abcd" if text in source] == ["a", "c", "d"]
    source.close()


async def test_a_text_with_nothing_in_it_to_read_has_no_intent_and_is_remembered_as_such():
    encoder = Held()
    encoder.go.set()
    source = intents(encoder)
    assert await source.begin("☃", soon()) is None
    assert "☃" in source
    assert source.known("☃") is None
    source.close()


async def test_texts_that_lost_their_middle_are_counted():
    encoder = Held()
    encoder.go.set()
    source = intents(encoder)
    await source.begin("short", soon())
    await source.begin("longer than that", soon())
    assert source.truncated == 1
    source.close()


async def test_a_text_nobody_waits_for_any_more_does_not_hold_up_the_next():
    encoder = Held()
    source = intents(encoder, threads=1, queue=3)
    now = asyncio.get_running_loop().time()
    begun, stale, again, fresh = (
        source.begin(text, until) for text, until in (("a", now + 5.0), ("b", now), ("c", now), ("d", now + 5.0))
    )
    assert source.begin("c", now + 5.0) is again
    await asyncio.sleep(0.05)
    encoder.go.set()
    await asyncio.gather(begun, again, fresh)
    with pytest.raises(SourceDown):
        await stale
    assert encoder.calls == ["a", "c", "d"]
    assert source.late == 1
    assert "b" not in source
    assert (await source.begin("b", soon())) is not None
    source.close()
