"""What breaks does not break requests."""

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from ext_proc import names
from tests.e2e.load import BODY, load
from tests.e2e.processes import SERVE, Process, listener
from tests.e2e.world import World, until
from tests.standin.pod import WAIT
from tests.standin.running import free_ports

CHAT = "/v1/chat/completions"


@pytest.mark.parametrize("mode", ["headers", "buffered"])
def test_killing_us_under_load_loses_no_request(new_world, mode: str) -> None:
    world: World = new_world(mode)
    with load(world) as traffic:
        for _ in range(3):
            time.sleep(0.7)
            world.service.kill()
            time.sleep(0.7)
            world.start_service()
            world.wait_for_workers(1)
        back = time.monotonic()
        time.sleep(1)
    assert set(traffic.statuses()) == {200}, traffic.statuses()
    assert traffic.undecided(0) > 0
    assert traffic.undecided(back) == 0
    assert len(traffic.answers) > 200


def test_killing_us_in_duplex_costs_at_most_what_was_in_flight(new_world) -> None:
    world: World = new_world("duplex")
    with load(world, threads=6) as traffic:
        time.sleep(1)
        killed = time.monotonic()
        world.service.kill()
        noticed = killed + until(lambda: world.envoy.healthy_workers() == 0, "the health check", 3)
        time.sleep(1)
    lost = [answer for answer in traffic.answers if answer[2] != 200]
    print(f"lost {len(lost)} of {len(traffic.answers)}; noticed after {noticed - killed:.2f} s")
    assert set(traffic.statuses(since=noticed)) == {200}
    assert all(sent < noticed and status in (503, 500) for sent, _, status, _ in lost)


@pytest.mark.parametrize("mode", ["headers", "buffered", "duplex"])
def test_one_worker_of_two_killed_is_forgotten_within_two_seconds(new_world, mode: str) -> None:
    world: World = new_world(mode, workers=2)
    with load(world) as traffic:
        time.sleep(1)
        killed = time.monotonic()
        os.kill(listener(world.config.server.port), signal.SIGKILL)
        time.sleep(4)
    assert traffic.last_undecided() < killed + 2.0
    if mode != "duplex":
        assert set(traffic.statuses()) == {200}, traffic.statuses()
    assert set(traffic.statuses(since=killed + 2.0)) == {200}


@pytest.mark.parametrize("mode", ["headers", "buffered", "duplex"])
def test_sigterm_drains_without_a_lost_request(new_world, mode: str) -> None:
    """Health goes first, then new streams, then the process; Envoy goes on without us."""
    world: World = new_world(mode, settings={"server": {"drain_s": 3.0}})
    with load(world) as traffic:
        time.sleep(0.7)
        world.service.send(signal.SIGTERM)
        assert world.service.wait(15) == 0
        time.sleep(0.7)
    assert set(traffic.statuses()) == {200}, traffic.statuses()
    assert "Traceback" not in world.service.said(100_000)


@pytest.mark.parametrize("mode", ["headers", "buffered", "duplex"])
def test_a_dead_pod_costs_no_request(new_world, mode: str) -> None:
    world: World = new_world(mode)
    world.loop.do(world.pods[0].stop())
    with world.client() as client:
        statuses = [client.post(CHAT, json=BODY).status_code for _ in range(30)]
    assert statuses == [200] * 30


@pytest.mark.parametrize("mode", ["headers", "buffered", "duplex"])
def test_a_worker_that_hangs_holds_nobody_for_long(new_world, mode: str) -> None:
    """Requests with a body already on its way to us are lost in duplex, but told so; all others go on without us."""
    world: World = new_world(mode)
    assert world.service is not None
    world.service.send(signal.SIGSTOP)
    try:
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: httpx.post(world.url + CHAT, json=BODY, timeout=10), range(8)))
    finally:
        world.service.send(signal.SIGCONT)
    assert {answer.status_code for answer in answers} <= ({200, 503} if mode == "duplex" else {200})
    assert all("error" in answer.json() for answer in answers if answer.status_code == 503)


def test_a_pod_that_comes_back_is_used_again(new_world) -> None:
    world: World = new_world("buffered")
    pod = world.pods[0]
    world.loop.do(pod.stop())
    with world.client() as client:
        for _ in range(9):
            client.post(CHAT, json=BODY)
        world.loop.do(pod.start())
        until(lambda: client.post(CHAT, json=BODY).headers[names.NODE] == pod.address, "the pod's return", 20)


def test_errors_of_a_pod_do_not_move_other_requests(new_world) -> None:
    """Envoy must not eject a pod for answering 5xx: whether it is ill is for the decision to say."""
    world: World = new_world("buffered")
    with world.client() as client:
        for _ in range(30):
            assert client.post(CHAT, json=BODY, headers={"x-standin-status": "500"}).status_code == 500
        nodes = {client.post(CHAT, json=BODY).headers[names.NODE] for _ in range(9)}
    assert nodes == {pod.address for pod in world.pods}


@pytest.mark.parametrize("mode", ["headers", "buffered", "duplex"])
def test_no_pod_at_all_is_a_503_in_openais_shape(new_world, mode: str) -> None:
    world: World = new_world(mode)
    for pod in world.pods:
        world.loop.do(pod.stop())
    with world.client() as client:
        response = client.post(CHAT, json=BODY)
    assert response.status_code == 503
    assert response.headers["content-type"] == "application/json"
    assert set(response.json()["error"]) == {"message", "type", "param", "code"}
    assert response.headers["retry-after"]


def test_envoy_answers_for_us_from_its_first_moment(new_world) -> None:
    """Isogloss not there yet: requests go on, undecided."""
    world: World = new_world("buffered", start=False)
    with world.client() as client:
        before = client.post(CHAT, json=BODY)
        assert before.status_code == 200
        assert names.POOL not in before.headers
        world.start_service()
        world.wait_for_workers(1)
        assert names.POOL in client.post(CHAT, json=BODY).headers


def test_a_taken_port_is_an_error_at_start_that_names_it(new_world) -> None:
    """Two services on one port would share requests at random."""
    world: World = new_world("buffered")
    text = (world.folder / "isogloss.yaml").read_text()
    free = iter(free_ports(3))
    for name in ("port", "health_port", "metrics_port"):
        path = world.folder / f"{name}.yaml"
        path.write_text(text)
        second = Process([*SERVE, path], world.folder / f"{name}.log")
        assert second.wait(60) == 1
        assert f"isogloss: server.{name}: cannot listen" in second.said()
        text = text.replace(f"  {name}: {getattr(world.config.server, name)}", f"  {name}: {next(free)}")
    assert world.service.alive


def figures(world: World, name: str) -> dict[str, float]:
    """A gauge of each node on the metrics page."""
    page = httpx.get(f"http://127.0.0.1:{world.config.server.metrics_port}/metrics").text
    rows = [line.rsplit(" ", 1) for line in page.splitlines() if line.startswith(f"isogloss_node_{name}{{")]
    return {key.split('"')[1]: float(value) for key, value in rows}


@pytest.mark.parametrize("mode", ["headers", "buffered", "duplex"])
def test_the_access_log_tells_us_how_long_each_pod_takes(new_world, mode: str) -> None:
    world: World = new_world(mode)
    with world.client() as client:
        for _ in range(9):
            assert client.post(CHAT, json=BODY, headers={WAIT: "0.3"}).status_code == 200
    addresses = {pod.address for pod in world.pods}
    until(lambda: figures(world, "latency_ms").keys() == addresses, "latencies", 10)
    assert all(250 < ms < 1000 for ms in figures(world, "latency_ms").values())
    assert set(figures(world, "error_rate").values()) == {0.0}


def test_a_pod_that_answers_every_post_with_an_error_is_left_alone_in_ten_seconds(new_world) -> None:
    """Its metrics are well and its errors quick: by its figures it is the best of all."""
    world: World = new_world("buffered", settings={"rules": {"strategy": "time_to_first_token"}})
    broken = world.pods[0]
    broken.broken = True
    began = time.monotonic()
    with world.client() as client:
        while time.monotonic() - began < 10:
            client.post(CHAT, json=BODY)
            time.sleep(0.05)
        nodes = [client.post(CHAT, json=BODY).headers[names.NODE] for _ in range(30)]
    assert nodes.count(broken.address) <= 1, nodes
