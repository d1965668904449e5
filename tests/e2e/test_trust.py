"""Our headers are ours: nobody outside can set them, at this proxy, whether we are up or down."""

import httpx
import pytest
import yaml

from ext_proc import envoy, names
from ext_proc.config import parse
from tests.e2e.raw import say
from tests.e2e.world import Envoy, World
from tests.standin.pod import STATUS, WAIT
from tests.standin.running import free_ports

FORGED = dict.fromkeys(names.OURS, "forged") | {names.ENDPOINT: "127.0.0.1:1"}
PATHS = (
    ("GET", "/v1/models"), ("GET", "/health"), ("HEAD", "/v1/models"), ("OPTIONS", "/v1/chat/completions"),
    ("POST", "/v1/chat/completions"), ("POST", "/v1/completions"), ("POST", "/v1/embeddings"),
    ("POST", "/v1/unheard-of"), ("DELETE", "/v1/files/1"), ("GET", "/v1/chat/completions?x=1"),
)  # fmt: skip


def send(url: str, method: str, path: str, marker: str) -> httpx.Response:
    """A request that claims to be decided already."""
    content = b'{"model":"standin","messages":[{"role":"user","content":"hi"}],"prompt":"x","input":"x"}'
    headers = FORGED | {"x-request-id": marker}
    return httpx.request(method, url + path, content=content if method == "POST" else None, headers=headers)


@pytest.mark.parametrize(("method", "path"), PATHS)
def test_a_clients_copy_of_our_headers_never_reaches_a_pod(world: World, marker: str, method: str, path: str) -> None:
    send(world.url, method, path, marker)
    seen = world.last(marker)
    assert "forged" not in dict(seen.headers).values()
    assert seen.header(names.ENDPOINT) != FORGED[names.ENDPOINT]


def test_a_client_steers_nothing_in_envoy(world: World, marker: str) -> None:
    """Not its time-outs, and above all not its retries: each would be one more generation on a GPU."""
    steering = {"x-envoy-upstream-rq-timeout-ms": "1", "x-envoy-retry-on": "5xx", "x-envoy-max-retries": "5"}
    headers = steering | {"x-request-id": marker, STATUS: "503", WAIT: "0.05"}
    assert httpx.post(world.url + "/v1/chat/completions", json={}, headers=headers).status_code == 503
    (seen,) = world.all(marker)
    assert not [name for name, _ in seen.headers if name in steering]


def test_a_hundred_headers_pass_and_more_are_a_431_whoever_says_so(world: World, marker: str) -> None:
    """Ours need room: Envoy refuses an answer that would make more of them than it takes."""
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\nx-request-id: {marker}\r\ncontent-length: 2\r\n"
    for more, status in ((91, b"400"), (92, b"431"), (200, b"431")):  # nine others: :path and so on, and Envoy's own
        lines = "".join(f"x-{i}: 1\r\n" for i in range(more))
        answer = say(world.envoy.port, (head + lines + "\r\n{}").encode())
        assert answer.startswith(b"HTTP/1.1 " + status), (more, answer)
        assert b'"error"' in answer


@pytest.mark.parametrize("mode", ["headers", "buffered", "duplex"])
def test_it_holds_while_we_are_down(new_world, marker: str, mode: str) -> None:
    world: World = new_world(mode, start=False)
    for i, (method, path) in enumerate(PATHS):
        response = send(world.url, method, path, f"{marker}-{i}")
        seen = world.last(f"{marker}-{i}")
        assert not {name for name, _ in seen.headers} & set(names.OURS)
        assert "forged" not in response.headers.values()
        assert names.INTENT not in response.headers
        assert names.SESSION not in response.headers


def test_a_second_envoy_behind_us_neither_strips_nor_decides(world: World, marker: str) -> None:
    """The pod's own sidecar: plain, one route to the pod."""
    port, admin = free_ports(2)
    pod = world.pods[0]
    tree = yaml.safe_load(
        envoy.render(parse(yaml.safe_dump({"fleet": {"nodes": [{"address": pod.address}]}}).encode()))
    )
    manager = tree["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
    manager["http_filters"] = manager["http_filters"][1:]
    del manager["early_header_mutation_extensions"]
    del manager["route_config"]["virtual_hosts"][0]["response_headers_to_add"]
    tree["static_resources"]["clusters"] = tree["static_resources"]["clusters"][:1]
    tree["static_resources"]["listeners"][0]["address"]["socket_address"]["port_value"] = port
    tree["admin"]["address"]["socket_address"]["port_value"] = admin
    second = Envoy(yaml.safe_dump(tree), world.folder, port, admin, "second")
    config = parse(yaml.safe_dump(world.settings | {"fleet": {"nodes": [{"address": f"127.0.0.1:{port}"}]}}).encode())
    assert config.fleet.nodes[0].address == f"127.0.0.1:{port}"
    try:
        told = dict.fromkeys(names.DECISION_HEADERS, "kept")
        response = httpx.get(second.url + "/v1/models", headers=told | {"x-request-id": marker})
        assert response.status_code == 200
        assert {name: world.last(marker).header(name) for name in told} == told
    finally:
        second.process.end()
