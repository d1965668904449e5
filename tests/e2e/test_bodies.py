"""Every byte a client sends reaches the pod, in every mode, up to the one limit and not past it."""

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from ext_proc import names
from tests.e2e.raw import RawPod, chunked, say
from tests.e2e.world import BODY_LIMIT, World
from tests.standin.running import free_ports

KIB = 1024
READ = "/v1/completions"
UNREAD = "/v1/files"
"""An API of which nothing is read: such bodies never wait for us."""
LIMIT = 64 * KIB
"""The small world's limit, so that its edges can be tried often."""


def body_of(size: int) -> bytes:
    """Bytes that no parser likes and no compressor shrinks."""
    return os.urandom(size)


def post(world: World, body: bytes, marker: str, **headers: str) -> httpx.Response:
    """A body to an API whose bodies are read."""
    headers = {"x-request-id": marker, "content-type": "application/octet-stream"} | headers
    with world.client() as client:
        return client.post(READ, content=body, headers=headers)


@pytest.mark.parametrize("size", [0, 1, 1000, 61_999, 62_000, 62_001, 64 * KIB, 1_200_000, 5_000_000])
def test_a_body_arrives_byte_for_byte(world: World, marker: str, size: int) -> None:
    body = body_of(size)
    post(world, body, marker)
    assert world.last(marker).sha256 == hashlib.sha256(body).hexdigest()


def test_a_body_of_exactly_the_limit_passes(world: World, marker: str) -> None:
    body = body_of(BODY_LIMIT)
    assert post(world, body, marker).status_code == 400  # the pod's own word on what is no JSON
    assert world.last(marker).sha256 == hashlib.sha256(body).hexdigest()


def test_one_byte_more_than_the_limit_is_a_413_in_openais_shape(world: World, marker: str) -> None:
    if world.mode == "headers":
        pytest.skip("headers-only never holds a body: what is too large is for the pod to say")
    response = post(world, body_of(BODY_LIMIT + 1), marker)
    assert response.status_code == 413
    assert response.headers["content-type"] == "application/json"
    assert set(response.json()["error"]) == {"message", "type", "param", "code"}
    assert not world.all(marker)


def test_an_unannounced_body_over_the_limit_is_a_413_too(world: World, marker: str) -> None:
    if world.mode == "headers":
        pytest.skip("headers-only never holds a body: what is too large is for the pod to say")
    pieces = (body_of(256 * KIB) for _ in range(BODY_LIMIT // (256 * KIB) + 1))
    with world.client() as client:
        try:
            status = client.post(READ, content=pieces, headers={"x-request-id": marker}).status_code
        except httpx.WriteError:  # refused while we still sent: the answer is lost with the connection
            status = 413
    assert status == 413
    assert all(seen.bytes <= BODY_LIMIT for seen in world.all(marker))


@pytest.mark.parametrize("http2", [False, True], ids=["h1", "h2"])
@pytest.mark.parametrize("pieces", [1, 7, 300])
def test_a_chunked_body_arrives_byte_for_byte(world: World, marker: str, pieces: int, http2: bool) -> None:
    parts = [body_of(1000) for _ in range(pieces)]
    with world.client(http1=not http2, http2=http2) as client:
        client.post(READ, content=iter(parts), headers={"x-request-id": marker})
    assert world.last(marker).sha256 == hashlib.sha256(b"".join(parts)).hexdigest()


def test_a_body_in_one_byte_packets_arrives(world: World, marker: str) -> None:
    head = f"POST {READ} HTTP/1.1\r\nhost: a\r\nx-request-id: {marker}\r\ncontent-length: 40\r\n\r\n"
    answer = say(world.envoy.port, head.encode(), *[bytes([65 + i]) for i in range(40)])
    assert answer.startswith(b"HTTP/1.1 400")
    assert world.last(marker).sha256 == hashlib.sha256(bytes(range(65, 105))).hexdigest()


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "DELETE"])
@pytest.mark.parametrize("http2", [False, True], ids=["h1", "h2"])
def test_a_request_without_a_body_is_decided_at_once(world: World, marker: str, method: str, http2: bool) -> None:
    with world.client(http1=not http2, http2=http2) as client:
        response = client.request(method, "/v1/models", headers={"x-request-id": marker})
    assert response.status_code == 200
    assert world.last(marker).method == method
    assert world.last(marker).bytes == 0


def test_a_post_of_nothing_passes(world: World, marker: str) -> None:
    head = f"POST /v1/models HTTP/1.1\r\nhost: a\r\nx-request-id: {marker}\r\ncontent-length: 0\r\n\r\n"
    assert say(world.envoy.port, head.encode()).startswith(b"HTTP/1.1 200")
    with world.client(http1=False, http2=True) as client:  # END_STREAM on the headers
        assert client.request("POST", "/v1/models", headers={"x-request-id": marker}).status_code == 200
    assert [seen.bytes for seen in world.all(marker)] == [0, 0]


def test_expect_100_continue_is_answered_and_two_megabytes_follow(world: World, marker: str) -> None:
    body = body_of(2 * KIB * KIB)
    head = (
        f"POST {READ} HTTP/1.1\r\nhost: a\r\nx-request-id: {marker}\r\nexpect: 100-continue\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    assert say(world.envoy.port, head.encode(), body).startswith(b"HTTP/1.1 400")
    assert world.last(marker).sha256 == hashlib.sha256(body).hexdigest()


def test_many_large_bodies_at_once_are_each_decided_once(world: World, marker: str) -> None:
    """Above 1 MB Envoy (1.35 and later) may say end_of_stream twice in full duplex."""
    bodies = [body_of(1_200_000) for _ in range(40)]
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda i: post(world, bodies[i], f"{marker}-{i}").status_code, range(40)))
    assert answers == [400] * 40
    for i, body in enumerate(bodies):
        (seen,) = world.all(f"{marker}-{i}")
        assert seen.sha256 == hashlib.sha256(body).hexdigest()


def test_a_body_nobody_reads_arrives_however_large_it_is(world: World, marker: str) -> None:
    piece = body_of(KIB * KIB)
    whole = hashlib.sha256()
    with world.client() as client:
        response = client.post(UNREAD, content=(piece for _ in range(20)), headers={"x-request-id": marker})
    for _ in range(20):
        whole.update(piece)
    assert response.status_code == 404  # the pod's own word
    ((pod, seen),) = world.arrivals(marker)
    assert (seen.bytes, seen.sha256) == (20 * KIB * KIB, whole.hexdigest())
    assert response.headers[names.NODE] == seen.header(names.ENDPOINT) == pod.address


def test_a_body_nobody_reads_costs_us_one_message(new_world) -> None:
    world: World = new_world("buffered")
    with world.client() as client:
        client.post(UNREAD, content=body_of(300_000))
    assert world.envoy.ext_proc("stream_msgs_sent") == 1


@pytest.mark.parametrize("path", [READ, UNREAD])
@pytest.mark.parametrize("mode", ["headers", "buffered", "duplex"])
def test_trailers_behind_a_chunked_body_arrive(new_world, mode: str, path: str) -> None:
    pod = RawPod(free_ports(1)[0])
    world: World = new_world(mode, pods=0, others=({"address": f"127.0.0.1:{pod.port}"},))
    world.loop.do(pod.start())
    head = f"POST {path} HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n".encode()
    end = b"0\r\nx-sum: 42\r\n\r\n"
    answer = say(world.envoy.port, head + chunked(b"hello ", b"world"), end)
    world.loop.do(pod.stop())
    assert answer.startswith(b"HTTP/1.1 200"), answer
    sent = next(request for request in pod.requests if request.startswith(b"POST"))
    # Once: with retries on its route, Envoy would give the pod in duplex the body twice.
    assert b"".join(sent.partition(b"\r\n\r\n")[2].split(b"\r\n")[1::2]) == b"hello worldx-sum: 42"
    assert b"x-sum: 42" in sent


@pytest.mark.parametrize("mode", ["buffered", "duplex"])
def test_a_configured_limit_holds_to_the_byte_announced_or_not(new_world, mode: str) -> None:
    """Announced, we refuse it at the headers; not announced, Envoy does (buffered) or we in mid-stream (duplex)."""
    world: World = new_world(mode, settings={"server": {"limits": {"body_bytes": LIMIT}}})
    for size, status in ((LIMIT - 1, 400), (LIMIT, 400), (LIMIT + 1, 413)):
        for body in (body_of(size), iter([body_of(size)])):
            with world.client() as client:
                response = client.post(READ, content=body)
            assert response.status_code == status
            assert response.headers["content-type"] == "application/json"
            if status == 413:
                assert set(response.json()["error"]) == {"message", "type", "param", "code"}
