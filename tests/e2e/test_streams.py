"""Answers stream as the pod sends them, for as long as it likes."""

import json
import time
from itertools import pairwise

import httpx
import pytest

from tests.e2e.world import World
from tests.standin.pod import WAIT

CHAT = "/v1/chat/completions"


def body(tokens: int, **more: object) -> dict[str, object]:
    """A streamed chat of *tokens*."""
    return {
        "model": "standin", "messages": [{"role": "user", "content": "count"}], "max_tokens": tokens, "stream": True,
    } | more  # fmt: skip


def test_every_token_arrives_when_it_is_made(world: World) -> None:
    for pod in world.pods:
        pod.engine.tokens_per_s = 20
    try:
        with world.client() as client, client.stream("POST", CHAT, json=body(20)) as response:
            times = [time.monotonic() for line in response.iter_lines() if line.startswith("data: {")]
    finally:
        for pod in world.pods:
            pod.engine.tokens_per_s = 2000
    assert len(times) == 21
    assert times[-1] - times[0] > 0.9  # a second's worth of tokens took a second: nobody held them back
    assert max(b - a for a, b in pairwise(times)) < 0.5


def test_a_stream_is_whole_and_ends_with_done(world: World) -> None:
    with world.client() as client:
        text = client.post(CHAT, json=body(300, stream_options={"include_usage": True})).text
    events = [line.removeprefix("data: ") for line in text.splitlines() if line]
    assert events[-1] == "[DONE]"
    assert json.loads(events[-2])["usage"]["completion_tokens"] == 300
    assert len(events) == 1 + 300 + 2


def test_an_answer_may_begin_late(new_world) -> None:
    """Later than Envoy's default route timeout of 15 s; every mode has the same route."""
    world: World = new_world()
    with world.client() as client:
        response = client.post(CHAT, json=body(2), headers={WAIT: "17"})
    assert response.status_code == 200
    assert response.text.endswith("data: [DONE]\n\n")


def test_a_client_that_leaves_in_mid_stream_disturbs_nobody(world: World) -> None:
    for _ in range(10):
        with world.client() as client, client.stream("POST", CHAT, json=body(2000)) as response:
            next(response.iter_bytes())
    with world.client() as client:
        assert client.post(CHAT, json=body(2)).status_code == 200


@pytest.mark.parametrize("size", [10, 200_000])
def test_a_client_that_leaves_while_uploading_disturbs_nobody(world: World, size: int) -> None:
    def half() -> object:
        yield b"x" * size
        raise ConnectionAbortedError

    with world.client() as client:
        for _ in range(5):
            with pytest.raises(ConnectionAbortedError):
                client.post(CHAT, content=half())
        assert client.post(CHAT, json=body(2)).status_code == 200


def test_an_upstream_error_comes_through_as_it_is(world: World) -> None:
    with world.client() as client:
        response = client.post(CHAT, json=body(2), headers={"x-standin-status": "503"})
    assert response.status_code == 503
    assert response.json() == {"error": {"message": "on demand", "type": "StandIn", "param": None, "code": 500}}
    assert isinstance(response, httpx.Response)
