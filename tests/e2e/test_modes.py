"""Mode by mode: what a body does for the decision, and what still reaches the pod. The table in tests/README.md."""

import hashlib
import json
import signal
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from ext_proc import names
from tests.e2e.raw import WebSocketEcho, say
from tests.e2e.test_bodies import body_of
from tests.e2e.world import Json, World, by_pool, until, world

CHAT = "/v1/chat/completions"
POOLS = {"code": {"model": "standin", "intents": ["coding"]}, "general": {"model": "standin"}}
CODING = "Write a Python function that merges two sorted lists and explain its complexity."
LIMIT = 64 * 1024


def ext_proc_filter(tree: Json) -> Json:
    """The ext_proc filter of a rendered Envoy configuration."""
    manager = tree["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
    found: Json = next(f["typed_config"] for f in manager["http_filters"] if "ext_proc" in f["name"])
    return found


def sends(**processing_mode: str) -> Callable[[Json], None]:
    """Another gateway's processing mode."""

    def bend(tree: Json) -> None:
        ext_proc_filter(tree)["processing_mode"].update(processing_mode)
        by_pool(tree)

    return bend


PARTIAL = sends(request_body_mode="BUFFERED_PARTIAL")
STREAMED = sends(request_body_mode="STREAMED")
WORLDS: dict[str, dict[str, Any]] = {
    "headers": {"mode": "headers", "bend": by_pool},
    "buffered": {"mode": "buffered", "bend": by_pool},
    "buffered_partial": {"mode": "buffered", "bend": PARTIAL},
    "streamed": {"mode": "headers", "bend": STREAMED},
    "duplex": {"mode": "duplex", "bend": by_pool},
}


@pytest.fixture(scope="module", params=list(WORLDS))
def mode_world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One world a mode."""
    settings = {"server": {"limits": {"body_bytes": LIMIT}}, "rules": {"pools": POOLS}}
    with world(tmp_path_factory.mktemp(request.param), **WORLDS[request.param], settings=settings) as made:
        made.mode = request.param
        yield made


def ask(mode_world: World, marker: str, text: str = CODING, model: str = "standin", **more: object) -> httpx.Response:
    """A small chat."""
    body = {"model": model, "messages": [{"role": "user", "content": text}], "max_tokens": 2} | more
    with mode_world.client() as client:
        return client.post(CHAT, json=body, headers={"x-request-id": marker})


def test_meaning_is_read_where_a_body_is_seen(mode_world: World, marker: str) -> None:
    response = ask(mode_world, marker)
    assert response.status_code == 200
    if mode_world.mode != "streamed":  # there it depends on whether the body is with Envoy before our first answer
        assert response.headers.get(names.INTENT) == (None if mode_world.mode == "headers" else "coding")
    ((pod, seen),) = mode_world.arrivals(marker)
    assert response.headers[names.NODE] == seen.header(names.ENDPOINT) == pod.address


def test_streamed_reads_a_body_that_comes_with_its_headers(new_world, marker: str) -> None:
    made: World = new_world(**WORLDS["streamed"], settings={"rules": {"pools": POOLS}})
    body = json.dumps({"model": "standin", "messages": [{"role": "user", "content": CODING}], "max_tokens": 2})
    head = f"POST {CHAT} HTTP/1.1\r\nhost: a\r\nx-request-id: {marker}\r\ncontent-length: {len(body)}\r\n\r\n"
    answer = say(made.envoy.port, (head + body).encode())
    assert b"x-isogloss-intent: coding" in answer
    assert b"x-route: by-pool" in answer
    ((pod, seen),) = made.arrivals(marker)
    assert seen.header(names.ENDPOINT) == pod.address


def test_routes_can_match_on_the_decision(mode_world: World, marker: str) -> None:
    assert ask(mode_world, marker).headers.get("x-route") == "by-pool"


def test_auto_is_spliced_where_the_whole_body_is_held(mode_world: World, marker: str) -> None:
    response = ask(mode_world, marker, model="auto")
    if mode_world.mode in ("buffered", "buffered_partial", "duplex"):
        assert response.json()["model"] == "standin"
    else:
        assert response.json()["error"]["code"] == 404  # the pod's own: it lists no `auto`


def test_a_large_body_arrives_whole_or_is_refused_by_the_limit(mode_world: World, marker: str) -> None:
    text = f"{CODING} " * (LIMIT // len(CODING) + 1)
    body = json.dumps({"model": "standin", "messages": [{"role": "user", "content": text}], "max_tokens": 2}).encode()
    with mode_world.client() as client:
        response = client.post(CHAT, content=body, headers={"x-request-id": marker})
    if mode_world.mode in ("headers", "buffered", "duplex"):
        assert response.status_code == 413
        return
    assert response.status_code == 200
    assert mode_world.last(marker).sha256 == hashlib.sha256(body).hexdigest()
    # A beginning is enough to read what it is about; Envoy honours the node, though it matches no route again.
    assert response.headers[names.NODE] == mode_world.last(marker).header(names.ENDPOINT)
    if mode_world.mode == "buffered_partial":
        assert response.headers[names.INTENT] == "coding"


def test_what_nobody_reads_passes_in_any_size(mode_world: World, marker: str) -> None:
    body = body_of(5 * LIMIT)

    def later() -> Iterator[bytes]:
        time.sleep(0.3)  # buffered, what comes before our answer to the headers counts against Envoy's limit
        yield body

    with mode_world.client() as client:
        client.post("/v1/files", content=later(), headers={"x-request-id": marker})
    assert mode_world.last(marker).sha256 == hashlib.sha256(body).hexdigest()


@pytest.mark.parametrize("http2", [False, True], ids=["h1", "h2"])
def test_a_streamed_answer_is_whole(mode_world: World, marker: str, http2: bool) -> None:
    with mode_world.client(http1=not http2, http2=http2) as client:
        body = {"model": "standin", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 50, "stream": True}
        text = client.post(CHAT, json=body).text
    assert text.count("data: {") == 51
    assert text.endswith("data: [DONE]\n\n")


def test_without_us_requests_still_reach_a_pod(mode_world: World, marker: str) -> None:
    assert mode_world.service is not None
    mode_world.service.kill()
    mode_world.wait_for_workers(0)
    try:
        response = ask(mode_world, marker)
    finally:
        mode_world.start_service()
        mode_world.wait_for_workers(1)
    assert response.status_code == 200
    assert names.POOL not in response.headers


def test_a_websocket_is_decided_by_its_headers_and_flows(mode_world: World, marker: str) -> None:
    """The pods speak no WebSocket, so one that does takes a pod's place."""
    pod = mode_world.pods[0]
    echo = WebSocketEcho(int(pod.address.rpartition(":")[2]))
    mode_world.loop.do(pod.stop())
    mode_world.loop.do(echo.start())
    try:
        head = (
            f"GET /v1/realtime?model=standin HTTP/1.1\r\nhost: a\r\nx-route-hint: node={pod.address};require\r\n"
            "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n"
            "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )
        with socket.create_connection(("127.0.0.1", mode_world.envoy.port), 5) as sock:
            sock.sendall(head.encode())
            answer = sock.recv(65536)
            assert answer.startswith(b"HTTP/1.1 101"), answer
            for i in range(3):
                sock.sendall(b"frame %d" % i)
                assert sock.recv(65536) == b"frame %d" % i
    finally:
        mode_world.loop.do(echo.stop())
        mode_world.loop.do(pod.start())


# The response phases, which our own configuration leaves out and other gateways send.


@pytest.mark.parametrize("mode", ["BUFFERED", "STREAMED", "FULL_DUPLEX_STREAMED"])
def test_an_answer_that_passes_us_is_whole_and_its_usage_is_counted(new_world, marker: str, mode: str) -> None:
    trailers = {"response_trailer_mode": "SEND"} if mode == "FULL_DUPLEX_STREAMED" else {}
    made: World = new_world("duplex", bend=sends(response_header_mode="SEND", response_body_mode=mode, **trailers))
    for pod in made.pods:
        pod.engine.tokens_per_s = 40
    body = {
        "model": "standin", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 20, "stream": True,
        "stream_options": {"include_usage": True},
    }  # fmt: skip
    with made.client() as client, client.stream("POST", CHAT, json=body) as response:
        times = [time.monotonic() for line in response.iter_lines() if line.startswith("data: ")]
    assert len(times) == 1 + 20 + 1 + 1
    assert (times[-1] - times[0] > 0.3) == (mode != "BUFFERED")  # piece by piece, unless the gateway holds them
    prompt, completion = tokens(made)
    assert completion == 20
    assert prompt > 0
    for pod in made.pods:
        pod.engine.tokens_per_s = 5000
    with made.client() as client:
        large = client.post(CHAT, json=body | {"max_tokens": 3000, "stream": False}).json()
    assert large["usage"]["completion_tokens"] == 3000
    until(lambda: tokens(made)[1] == 3020, "the second answer's usage")


def tokens(made: World) -> tuple[float, float]:
    """Tokens counted on the metrics page: prompt, completion."""
    page = httpx.get(f"http://127.0.0.1:{made.config.server.metrics_port}/metrics").text
    rows = dict(line.rsplit(" ", 1) for line in page.splitlines() if line.startswith("isogloss_tokens_total"))
    return tuple(float(rows.get(f'isogloss_tokens_total{{kind="{kind}"}}', 0)) for kind in ("prompt", "completion"))  # type: ignore[return-value]


# Watching only.


def test_who_only_watches_sees_everything_and_changes_nothing(new_world, marker: str) -> None:
    """observability_mode: Envoy shows us requests and waits for nothing, not even for a service that hangs."""

    def watch(tree: Json) -> None:
        found = ext_proc_filter(tree)
        found["observability_mode"] = True
        found["processing_mode"]["request_body_mode"] = "STREAMED"
        found.pop("failure_mode_allow")

    made: World = new_world("headers", bend=watch, settings={"rules": {"pools": POOLS}})
    for i in range(5):
        response = ask(made, f"{marker}-{i}")
        assert response.status_code == 200
        assert names.POOL not in response.headers
        assert made.last(f"{marker}-{i}").header(names.ENDPOINT) is None
    url = f"http://127.0.0.1:{made.config.server.metrics_port}/metrics"
    until(lambda: 'isogloss_intents_total{intent="coding"} 5.0' in httpx.get(url).text, "five intents counted")
    assert made.service is not None
    made.service.send(signal.SIGSTOP)
    try:
        began = time.monotonic()
        assert ask(made, marker).status_code == 200
        assert time.monotonic() - began < 1.0
    finally:
        made.service.send(signal.SIGCONT)
