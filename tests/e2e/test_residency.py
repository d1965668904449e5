"""Data residency with a real Envoy: no request leaves, not even when we or the only node it may go to are down."""

import time

import httpx
import pytest

from ext_proc import names
from tests.e2e.load import BODY, load
from tests.e2e.world import MODES, World

CHAT = "/v1/chat/completions"
EU_ONLY = {"rules": {"residency": [{"stay": ["EU"]}]}}
FRENCH, AMERICAN = "129.132.1.1", "128.112.1.1"
OF_THE_EU = {
    "rules": {"residency": [{"clients": ["EU"], "stay": ["EU"]}]},
    "places": {
        "trusted_hops": 1,
        "networks": [{"cidr": "129.132.1.1/32", "country": "FR"}, {"cidr": "128.112.1.1/32", "country": "US"}],
    },
}


def went_to(world: World) -> dict[str, int]:
    """Chat requests each pod has seen, by its region."""
    regions = {node.address: node.region or "" for node in world.config.fleet.nodes}
    return {regions[pod.address]: sum(seen.path == CHAT for seen in pod.seen) for pod in world.pods}


def refused(response: httpx.Response) -> None:
    assert response.status_code == 503, response.text
    assert response.headers["content-type"] == "application/json"
    assert response.json()["error"]["code"] == 503


@pytest.mark.parametrize("mode", MODES)
def test_nothing_leaves_while_we_are_killed_and_come_back(new_world, mode: str) -> None:
    world: World = new_world(mode, settings=EU_ONLY)
    with load(world, threads=4) as traffic:
        time.sleep(0.7)
        world.service.kill()
        time.sleep(1)
        world.start_service()
        world.wait_for_workers(1)
        time.sleep(0.7)
    assert {200, 503} <= set(traffic.statuses()) <= {200, 500, 503}, traffic.statuses()
    assert not [answer for answer in traffic.answers if answer[2] == 200 and not answer[3]]
    went = went_to(world)
    assert went["eu-west"] > 0
    assert (went["us-east"], went["ap-southeast"]) == (0, 0)


@pytest.mark.parametrize("mode", MODES)
def test_a_client_that_names_a_node_while_we_are_down_gets_nowhere(new_world, mode: str) -> None:
    world: World = new_world(mode, settings=EU_ONLY, start=False)
    with world.client() as client:
        for pod in world.pods:
            refused(client.post(CHAT, json=BODY, headers={names.ENDPOINT: pod.address}))
    assert set(went_to(world).values()) == {0}


@pytest.mark.parametrize("fallbacks", [0, 2])
@pytest.mark.parametrize("mode", MODES)
def test_a_dead_node_is_a_503_and_no_reason_to_leave(new_world, mode: str, fallbacks: int) -> None:
    """Envoy's retry goes to the decision's next nodes, or to none."""
    rules = EU_ONLY["rules"] | {"fallbacks": fallbacks}
    world: World = new_world(mode, settings={"rules": rules})
    world.loop.do(world.pods[1].stop())
    with world.client() as client:
        for _ in range(6):
            refused(client.post(CHAT, json=BODY))
    assert set(went_to(world).values()) == {0}


def test_where_no_node_may_answer_the_client_is_told_so(new_world) -> None:
    world: World = new_world("buffered", settings={"rules": {"residency": [{"stay": ["BR"]}]}})
    with world.client() as client:
        response = client.post(CHAT, json=BODY)
    refused(response)
    assert response.json()["error"] == {
        "message": "This request must stay in BR (data residency), and no node there is available for it.",
        "type": "ServiceUnavailableError",
        "param": None,
        "code": 503,
    }
    assert set(went_to(world).values()) == {0}


@pytest.mark.parametrize("mode", MODES)
def test_clients_of_the_union_stay_whatever_they_say(new_world, mode: str) -> None:
    """Their session was abroad, they hint at nodes abroad, they put another address before their own."""
    world: World = new_world(mode, settings=OF_THE_EU)
    american, irish = world.pods[0].address, world.pods[1].address
    with world.client() as client:

        def ask(forwarded: str, **headers: str) -> httpx.Response:
            return client.post(CHAT, json=BODY, headers={"x-forwarded-for": forwarded} | headers)

        free = {ask(AMERICAN).headers[names.NODE] for _ in range(6)}
        assert free == {pod.address for pod in world.pods}
        hint = {names.HINT: f"node={american}"}
        abroad = ask(AMERICAN, **hint)
        assert abroad.headers[names.NODE] == american
        session = {names.SESSION: abroad.headers[names.SESSION]}
        for headers in ({}, hint, session, hint | session, {names.ENDPOINT: american}):
            for forwarded in (FRENCH, f"{AMERICAN}, {FRENCH}", "unknown", ""):
                assert ask(forwarded, **headers).headers[names.NODE] == irish, (headers, forwarded)
        refused(ask(FRENCH, **{names.HINT: f"node={american};require"}))
