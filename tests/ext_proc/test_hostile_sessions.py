"""Session ids made to do harm, over real gRPC: none injects, none reaches another tenant's session, none costs much."""

import json
import re

import pytest

from ext_proc import names
from tests.ext_proc.replay import Replay, body, head, replay
from tests.ext_proc.test_router import World
from tests.ext_proc.test_sessions import HOSTILE

SAFE = re.compile(r"[A-Za-z0-9._:~=+/-]{1,128}", re.ASCII)


async def told(client: Replay, user: str | None = None, **headers: str) -> dict[str, str]:
    """What we set on the request."""
    said = json.dumps({"model": "talker", "user": user, "messages": [{"role": "user", "content": "tell me"}]})
    first, *_ = await client.play(head(**headers), body(said.encode(), ends=True))
    set_ = first.request_headers.response.header_mutation.set_headers
    return {option.header.key: option.header.raw_value.decode() for option in set_}


@pytest.mark.parametrize(
    "hostile", [*(h for h in HOSTILE if len(h) < 60_000), "a\0b", "\r\nx-isogloss-tier: x\r\n\r\n"]
)
async def test_only_a_safe_id_leaves_whatever_comes(hostile: str):
    async with replay(World().router) as client:
        for headers in (
            await told(client, x_session_id=hostile),
            await told(client, user=hostile),
            await told(client, cookie=f"sid={hostile}", authorization=hostile),
        ):
            assert SAFE.fullmatch(headers[names.SESSION])
            assert not any(re.search(r"[\r\n\0]", value) for value in headers.values())
            assert headers[names.TIER] == "normal"


async def test_megabytes_are_refused_as_a_header_and_only_hashed_as_a_user():
    async with replay(World().router) as client:
        (refused,) = await client.play(head(x_session_id="x" * 1_000_000, ends=True))
        assert int(refused.immediate_response.status.code) == 431
        assert len((await told(client, user="x" * 1_000_000))[names.SESSION]) == 32


async def test_the_same_id_of_another_tenant_is_another_session_and_ids_do_not_run_together():
    world = World()
    async with replay(world.router) as client:
        pairs = [("a", "bc"), ("ab", "c"), ("b", "bc"), ("", "bc"), ("a:2", "bc"), ("abc", "")]
        for tenant, session in pairs:
            headers = {"authorization": tenant, "x_session_id": session}
            await told(client, **{name: value for name, value in headers.items() if value})
        assert len(world.sessions._bindings) == len(pairs)
        for tenant, user in pairs:
            await told(client, user=user or "u", **({"authorization": tenant} if tenant else {}))
        assert len(world.sessions._bindings) == 2 * len(pairs)


async def test_an_id_we_made_for_a_user_opens_nothing_under_another_token():
    world = World()
    async with replay(world.router) as client:
        given = (await told(client, user="ann", authorization="Bearer a"))[names.SESSION]
        before = len(world.sessions._bindings)
        await told(client, x_session_id=given, authorization="Bearer a")
        assert len(world.sessions._bindings) == before
        await told(client, x_session_id=given, authorization="Bearer b")
        assert len(world.sessions._bindings) == before + 1
