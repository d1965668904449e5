"""The decision reaches the pod it names, and everybody who should know is told the same."""

import hashlib
import json
from collections import Counter

import httpx
import pytest

from ext_proc import names
from tests.e2e.world import COOKIE, World, said

CHAT = "/v1/chat/completions"


def chat(text: str = "hello", model: str = "standin", **more: object) -> dict[str, object]:
    """A small chat request."""
    return {"model": model, "messages": [{"role": "user", "content": text}], "max_tokens": 2} | more


def ask(world: World, marker: str, body: dict[str, object] | None = None, **headers: str) -> httpx.Response:
    """One request, findable by *marker*."""
    with world.client() as client:
        return client.post(CHAT, json=body or chat(), headers={"x-request-id": marker} | headers)


def test_the_request_reaches_the_node_the_decision_names(world: World, marker: str) -> None:
    for i in range(12):
        response = ask(world, f"{marker}-{i}")
        assert response.status_code == 200, response.text
        ((pod, seen),) = world.arrivals(f"{marker}-{i}")
        assert seen.header(names.ENDPOINT).split(",")[0] == pod.address
        assert response.headers[names.NODE] == pod.address


def test_requests_are_spread_by_the_decision_not_by_envoy(world: World, marker: str) -> None:
    """Round robin is exact; Envoy's own least-request fallback would not be."""
    used = Counter(ask(world, f"{marker}-{i}").headers[names.NODE] for i in range(30))
    assert set(used.values()) == {10}, used


def test_header_and_metadata_say_the_same(world: World, marker: str) -> None:
    ask(world, marker)
    line = world.envoy.access(marker)
    assert line["chosen"] == line["metadata"]
    assert line["chosen"].split(",")[0] == line["node"]


@pytest.mark.parametrize("http2", [False, True], ids=["h1", "h2"])
def test_pod_and_client_are_told_the_decision_in_the_same_words(world: World, marker: str, http2: bool) -> None:
    with world.client(http1=not http2, http2=http2) as client:
        response = client.post(CHAT, json=chat(), headers={"x-request-id": marker})
    ((pod, seen),) = world.arrivals(marker)
    told = said(response)
    assert {names.POOL, names.TIER, names.CONFIDENCE, names.NODE, names.SESSION} <= told.keys()
    assert told.pop(names.NODE) == pod.address
    assert told == {name: seen.header(name) for name in told}
    assert not any(value == "" for key, value in response.headers.items() if key.startswith("x-isogloss"))


def test_a_session_is_made_and_kept(world: World, marker: str) -> None:
    first = ask(world, marker)
    session = first.headers[names.SESSION]
    assert len(session) >= 16
    nodes = {ask(world, f"{marker}-{i}", **{names.SESSION: session}).headers[names.NODE] for i in range(6)}
    assert nodes == {first.headers[names.NODE]}


def test_two_new_clients_get_different_sessions(world: World, marker: str) -> None:
    assert ask(world, marker).headers[names.SESSION] != ask(world, marker).headers[names.SESSION]


def test_model_auto_becomes_a_model_and_nothing_else_changes(world: World, marker: str) -> None:
    if world.mode == "headers":
        pytest.skip("headers-only sees no body; pods may list `auto` as an alias")
    text = (
        '{ "seed": 9007199254740993, "temperature": 1.0, "model":"auto",'
        '"messages":[{"role":"user","content":"d\\u00e9j\\u00e0"}],"max_tokens":2}'
    )
    with world.client() as client:
        response = client.post(CHAT, content=text, headers={"x-request-id": marker})
    expected = text.replace('"auto"', '"standin"').encode()
    digest = hashlib.sha256(expected).hexdigest()
    assert response.json()["model"] == "standin"
    seen = world.last(marker)
    assert (seen.bytes, seen.sha256) == (len(expected), digest)
    if world.mode == "buffered":
        assert seen.header("content-length") == str(len(expected))


def test_an_unknown_model_gets_vllms_404_listing_what_exists(world: World, marker: str) -> None:
    response = ask(world, marker, chat(model="nope"))
    assert response.status_code == 404
    assert response.headers["content-type"] == "application/json"
    error = response.json()["error"]
    assert error["type"] == "NotFoundError"
    assert error["code"] == 404
    assert "nope" in error["message"]
    assert "standin" in error["message"] or world.mode != "headers"


@pytest.mark.parametrize(
    "text", ["a\r\nx-isogloss-intent: evil", "nul\0nul", "🦊🦊", "é" * 300, "\ud83d", "x" * 20_000]
)
def test_a_hostile_model_name_breaks_nothing(world: World, marker: str, text: str) -> None:
    body = json.dumps(chat(model=text))
    with world.client() as client:
        response = client.post(CHAT, content=body, headers={"x-request-id": marker})
    assert response.status_code == 404
    assert response.json()["error"]["code"] == 404
    assert ask(world, f"{marker}-after").status_code == 200


@pytest.mark.parametrize("session", [b"\xf0\x9f\xa6\x8a", b"a;b=c, d", b"x" * 8_000, b'"', b"\xff\xfe", b"%0d%0a"])
def test_a_hostile_session_id_breaks_nothing(world: World, marker: str, session: bytes) -> None:
    with world.client() as client:
        headers = [(b"x-request-id", marker.encode()), (b"x-session-id", session)]
        answers = [client.post(CHAT, json=chat(), headers=headers) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200] * 3


def test_malformed_json_is_the_pods_to_refuse(world: World, marker: str) -> None:
    with world.client() as client:
        response = client.post(CHAT, content=b'{"model":', headers={"x-request-id": marker})
    assert response.status_code == 400
    assert response.json()["error"]["type"] == "Bad Request"
    assert world.last(marker).bytes == 9


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/responses", "/v1/embeddings", "/v1/messages"])
def test_every_api_reaches_a_pod(world: World, marker: str, path: str) -> None:
    text = {"messages": [{"role": "user", "content": "hi"}]} if "messages" in path else {"prompt": "hi", "input": "hi"}
    with world.client() as client:
        body = {"model": "standin", "max_tokens": 2} | text
        response = client.post(path, json=body, headers={"x-request-id": marker})
    assert response.status_code == 200, response.text
    assert names.POOL in response.headers


def test_a_route_can_match_on_our_pool(world: World, marker: str) -> None:
    """The shared worlds have a route only for requests of our pool, which say so only after we answered."""
    assert ask(world, marker).headers.get("x-route") == "by-pool"


def test_a_session_cookie_is_set_and_is_enough(world: World, marker: str) -> None:
    first = ask(world, marker)
    cookie = first.headers["set-cookie"]
    assert cookie.startswith(f"{COOKIE}={first.headers[names.SESSION]};")
    for i in range(4):
        again = ask(world, f"{marker}-{i}", cookie=f"theme=dark; {cookie.partition(';')[0]}")
        assert again.headers[names.NODE] == first.headers[names.NODE]
