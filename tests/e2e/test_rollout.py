"""Several workers share the work, and a rollout, worker by worker, costs nobody a request."""

import os
import re
import signal
import time
from collections.abc import Iterator

import grpc
import httpx

from ext_proc import names
from tests.e2e.load import BODY, load
from tests.e2e.processes import listener, listens
from tests.e2e.world import Json, World, until
from tests.ext_proc.replay import body, head

CHAT = "/v1/chat/completions"


def no_way_round_us(tree: Json) -> None:
    """A request that goes without a decision of ours fails."""
    manager = tree["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
    manager["http_filters"][0]["typed_config"]["failure_mode_allow"] = False


def decisions(world: World, worker: int) -> int:
    """So many has that worker taken."""
    page = httpx.get(f"http://127.0.0.1:{world.config.server.metrics_port + worker}/metrics").text
    return sum(int(float(value)) for value in re.findall(r"^isogloss_decisions_total\{.*\} (\S+)$", page, re.MULTILINE))


def test_workers_share_the_work_and_replaced_in_turn_lose_nothing_though_nothing_may_pass_us(new_world) -> None:
    """One Envoy thread, which keeps one connection for each of them."""
    world: World = new_world("buffered", workers=2, bend=no_way_round_us, settings={"server": {"drain_s": 3.0}})
    with world.client() as client:
        assert {client.post(CHAT, json=BODY).status_code for _ in range(100)} == {200}
    shares = [decisions(world, worker) / 100 for worker in range(2)]
    assert sum(shares) == 1
    assert all(0.35 <= share <= 0.65 for share in shares), shares
    with load(world, threads=4) as traffic:
        for worker in range(2):
            port = world.config.server.port + worker
            leaving = listener(port)
            os.kill(leaving, signal.SIGTERM)
            until(lambda port=port: not listens(port), "its end", 15)
            until(lambda port=port: listens(port), "its successor", 60)
            world.wait_for_workers(2)
            assert listener(port) != leaving
        time.sleep(0.5)
    assert set(traffic.statuses()) == {200}, traffic.statuses()
    assert traffic.undecided(0) == 0
    assert len(traffic.answers) > 100


def test_two_hundred_open_streams_do_not_keep_us_from_stopping_in_time(new_world) -> None:
    world: World = new_world("duplex", settings={"server": {"drain_s": 2.0}})
    assert world.service is not None
    with grpc.insecure_channel(f"127.0.0.1:{world.config.server.port}") as channel:
        ask = channel.stream_stream(names.METHOD)
        halves = [Half() for _ in range(200)]
        answers = [ask(iter(half)) for half in halves]
        until(lambda: _streams(world) >= 200, "all streams")
        began = time.monotonic()
        world.service.send(signal.SIGTERM)
        time.sleep(0.3)
        halves[0].ended = True
        assert len(list(answers[0])) == 2  # who ends meanwhile is answered, headers and body
        assert world.service.wait(10) == 0
        assert time.monotonic() - began < 2.0 + 2.0 + 1.0  # the grace, two more, and the notice to Envoy
        for half in halves:
            half.ended = True
    assert "Traceback" not in world.service.said(100_000)


class Half:
    """A request whose headers are sent, and its end when told."""

    def __init__(self) -> None:
        self.ended = False

    def __iter__(self) -> Iterator[bytes]:
        yield bytes(head())
        while not self.ended:
            time.sleep(0.05)
        yield bytes(body(b"{}", ends=True))


def _streams(world: World) -> int:
    page = httpx.get(f"http://127.0.0.1:{world.config.server.metrics_port}/metrics").text
    return int(float(re.findall(r"^isogloss_streams (\S+)$", page, re.MULTILINE)[0]))
