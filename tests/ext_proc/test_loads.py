"""Claims about reading the pods' own figures; the pages in fixtures/ are a real vLLM's."""

import asyncio
import contextlib
import gzip
import math
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ext_proc.config import FleetConfig
from ext_proc.errors import SourceDown
from ext_proc.sources.loads import PAGE_BYTES, Scraper, loads
from policy.live import STALE_S, LiveFleet
from policy.rules import Watermarks
from policy.types import Load, Node
from tests.ext_proc.pods import OK, Behaviour, Pods, answers, drips, hangs, hangs_up, never_ends

FIXTURES = Path(__file__).parent / "fixtures"
QUICK = FleetConfig(scrape_s=0.05, scrape_timeout_s=0.4)
PAGE = 'vllm:num_requests_running{engine="0"} 3.0\nvllm:num_requests_waiting 2\nvllm:kv_cache_usage_perc 0.5\n'


def fixture(name: str) -> str:
    return (FIXTURES / name).read_text()


def test_a_real_vllm_under_load():
    assert loads(fixture("metrics-under-load.txt")) == Load(running=8.0, waiting=8.0, memory=0.11154598825831707)


def test_a_real_vllm_at_rest_is_known_to_be_at_rest():
    assert loads(fixture("metrics-idle.txt")) == Load(running=0.0, waiting=0.0, memory=0.0)


def test_the_name_before_vllm_0_9_means_the_same():
    assert loads("vllm:gpu_cache_usage_perc 0.7\n").memory == 0.7


def test_a_figure_that_is_missing_or_nan_or_absurd_is_unknown_and_never_zero():
    assert loads("") == loads("<html>hello</html>") == Load()
    assert loads("vllm:num_requests_running 4\n") == Load(running=4.0)
    for value in ("NaN", "+Inf", "-Inf", "-1"):
        assert loads(PAGE.replace("3.0", value).replace("0.5", value)) == Load(waiting=2.0)


def test_several_engines_add_up_and_the_fullest_cache_counts():
    page = "".join(
        f'vllm:num_requests_running{{engine="{i}"}} {i}\nvllm:kv_cache_usage_perc{{engine="{i}"}} 0.{i}\n'
        for i in range(1, 5)
    )
    assert loads(page) == Load(running=10.0, memory=0.4)


def test_one_engine_that_does_not_know_leaves_the_sum_unknown():
    page = 'vllm:num_requests_running{engine="0"} 4\nvllm:num_requests_running{engine="1"} NaN\n'
    assert loads(page).running is None


def test_similar_names_comments_and_label_values_are_not_figures():
    page = (
        "# HELP vllm:num_requests_running Number of requests\n"
        'vllm:num_requests_waiting_by_reason{reason="capacity"} 9\n'
        "xvllm:num_requests_running 9\n"
        'other{help="\\nvllm:num_requests_running 9"} 9\n'
        'vllm:num_requests_running{model_name="a } 7, \\"b\\" = {"} 1 1700000000000\r\n'
    )
    assert loads(page) == Load(running=1.0)


def test_more_than_all_of_the_cache_is_all_of_it():
    assert loads("vllm:kv_cache_usage_perc 1.0000001\n").memory == 1.0


@given(
    st.lists(st.one_of(st.text(max_size=40), st.sampled_from([*PAGE.split("\n"), "vllm:num_requests_running{", "} 1"])))
)
def test_no_page_makes_it_raise_anything_but_source_down(lines: list[str]):
    with contextlib.suppress(SourceDown):
        found = loads("\n".join(lines))
        assert all(value is None or (value >= 0 and math.isfinite(value)) for value in (found.running, found.waiting))
        assert found.memory is None or 0 <= found.memory <= 1


def test_a_real_page_takes_less_than_a_tenth_of_the_time_a_whole_parse_takes():
    from prometheus_client.parser import text_string_to_metric_families

    page = fixture("metrics-under-load.txt")

    def best(read: Callable[[], object]) -> float:
        times = []
        for _ in range(5):
            began = time.perf_counter()
            read()
            times.append(time.perf_counter() - began)
        return min(times)

    assert best(lambda: loads(page)) < 0.1 * best(lambda: list(text_string_to_metric_families(page)))


@pytest.fixture
async def pods() -> AsyncIterator[Pods]:
    made = Pods()
    yield made
    await made.close()


def fleet(*addresses: str) -> LiveFleet:
    return LiveFleet([Node(address=address) for address in addresses], Watermarks())


def seen(live: LiveFleet, address: str) -> Load:
    where = live.fleet.by_address[address]
    figures = (getattr(live.fleet, name)[where].item() for name in ("running", "waiting", "memory"))
    running, waiting, memory = (None if math.isnan(figure) else figure for figure in figures)
    return Load(running=running, waiting=waiting, memory=memory)


async def once(*addresses: str, settings: FleetConfig = QUICK) -> tuple[LiveFleet, Scraper, float]:
    live = fleet(*addresses)
    scraper = Scraper(settings, live)
    began = time.monotonic()
    await scraper.once()
    return live, scraper, time.monotonic() - began


async def test_a_pod_is_read_over_ipv4_and_ipv6(pods: Pods):
    four = await pods.add(answers(PAGE.encode()))
    six = await pods.add(answers(PAGE.encode()), "::1")
    live, scraper, _ = await once(four, six)
    assert seen(live, four) == seen(live, six) == Load(running=3.0, waiting=2.0, memory=0.5)
    assert (scraper.failed, scraper.silent) == (0, 0)


async def test_new_name_old_name_and_neither_are_told_apart(pods: Pods):
    new = await pods.add(answers(PAGE.encode()))
    old = await pods.add(answers(PAGE.replace("kv_", "gpu_").encode()))
    neither = await pods.add(answers(b"up 1\n"))
    live, scraper, _ = await once(new, old, neither)
    assert seen(live, new) == seen(live, old)
    assert seen(live, neither) == Load()
    assert (scraper.failed, scraper.silent) == (0, 1)


@pytest.mark.parametrize(
    "behave",
    [
        hangs, drips, never_ends, hangs_up,
        answers(PAGE.encode(), b"HTTP/1.1 503 Service Unavailable\r\n"),
        answers(PAGE.encode(), b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\n"),
        answers(b"vllm:num_requests_running{ 1\n"),
        answers(b"x" * (PAGE_BYTES + 1)),
        answers(PAGE.encode(), b"GARBAGE\r\n\r\n"),
    ],
)  # fmt: skip
async def test_a_pod_that_cannot_be_read_is_unknown_within_its_time_and_counted(pods: Pods, behave: Behaviour):
    address = await pods.add(behave)
    live, scraper, seconds = await once(address)
    assert seen(live, address) == Load()
    assert scraper.failed == 1
    assert seconds < QUICK.scrape_timeout_s + 1.0


async def test_a_pod_that_is_not_there_is_unknown():
    live, scraper, _ = await once("127.0.0.1:1")
    assert (seen(live, "127.0.0.1:1"), scraper.failed) == (Load(), 1)


async def test_a_packed_page_is_not_unpacked(pods: Pods):
    address = await pods.add(answers(gzip.compress(b"0" * 100_000_000), OK + b"content-encoding: gzip\r\n"))
    live, scraper, seconds = await once(address)
    assert (seen(live, address), scraper.silent) == (Load(), 1)
    assert seconds < 1.0


async def test_hostile_pods_delay_nobody(pods: Pods):
    well = await pods.add(answers(PAGE.encode()))
    hostile = [await pods.add(behave) for behave in (hangs, drips, never_ends)]
    live = fleet(well, *hostile)
    scraper = Scraper(FleetConfig(scrape_s=0.05, scrape_timeout_s=1.5), live)
    task = asyncio.create_task(scraper.run())
    await asyncio.sleep(1.2)  # none of the hostile ones has timed out yet, save the one that talks too much
    assert pods.asked[well] >= 8
    assert pods.asked[hostile[0]] == 1
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_pods_that_come_are_read_and_pods_that_go_are_left_alone(pods: Pods):
    one, two = [await pods.add(answers(PAGE.encode())) for _ in range(2)]
    live = fleet(one)
    task = asyncio.create_task(Scraper(QUICK, live).run())
    await asyncio.sleep(0.2)
    assert pods.asked[two] == 0
    live.replace([Node(address=two)])
    async with asyncio.timeout(10):
        while not seen(live, two).running:
            await asyncio.sleep(0.02)
    before = pods.asked[one]
    await asyncio.sleep(0.3)
    assert pods.asked[one] == before
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_what_is_sent_while_a_page_is_under_way_stays_counted(pods: Pods):
    asked, go = asyncio.Event(), asyncio.Event()

    async def slow(inward: asyncio.StreamReader, out: asyncio.StreamWriter) -> None:
        asked.set()
        await go.wait()
        await answers(PAGE.encode())(inward, out)

    address = await pods.add(slow)
    live = fleet(address)
    live.sent(address, 1.0)
    reading = asyncio.create_task(Scraper(FleetConfig(scrape_timeout_s=10.0), live).once())
    await asked.wait()
    live.sent(address, 1.1)
    live.sent(address, 1.2)
    go.set()
    await reading
    assert live.fleet.sent.tolist() == [2.0]


async def test_a_pod_whose_page_goes_away_is_unknown_once_its_figures_are_stale(pods: Pods):
    address = await pods.add(answers(PAGE.encode()))
    now = 100.0
    live = fleet(address)
    scraper = Scraper(QUICK, live, clock=lambda: now)
    await scraper.once()
    await pods.close()
    await scraper.once()
    assert seen(live, address).running == 3.0
    running = asyncio.create_task(scraper.run())
    now += STALE_S
    async with asyncio.timeout(10):
        while seen(live, address) != Load():
            await asyncio.sleep(0.02)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_what_we_did_not_foresee_is_not_swallowed(pods: Pods, monkeypatch: pytest.MonkeyPatch):
    address = await pods.add(answers(PAGE.encode()))
    live = fleet(address)
    monkeypatch.setattr(live, "observed", lambda *_, **__: 1 / 0)
    with pytest.raises(ExceptionGroup) as told:
        await asyncio.wait_for(Scraper(QUICK, live).run(), 5)
    assert told.group_contains(ZeroDivisionError)
