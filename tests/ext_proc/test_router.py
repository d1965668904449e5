"""From Envoy's question to its answer, with sources that can be bent."""

import asyncio
import gzip
import json
import time
import zlib
from typing import Any

import brotli
import pytest

from ext_proc import config, names
from ext_proc.errors import SourceDown
from ext_proc.gather import Gather
from ext_proc.observe.metrics import Metrics
from ext_proc.protocol import Decide, Refuse, Route
from ext_proc.router import Router
from ext_proc.sources.sessions import MemorySessions
from ext_proc.unpack import zstd
from policy.live import LiveFleet
from policy.rules import Pool, Residency, Rules
from policy.types import Binding, Intent, Node, Place

CODE = Node(address="10.0.0.1:8000", pool="code", models=("coder",), region="eu")
TALK = Node(address="10.0.0.2:8000", pool="general", models=("talker",), region="us")
RULES = Rules(pools={"code": Pool(model="coder", intents=("coding",)), "general": Pool(model="talker")})


class Meanings:
    """Intents by first word, after a while."""

    bundle = "b1"

    def __init__(self, seconds: float = 0.0, down: bool = False) -> None:
        self.seconds, self.down = seconds, down
        self.seen: list[str] = []

    def __contains__(self, text: str) -> bool:
        return False

    def begin(self, text: str, until: float) -> "asyncio.Future[Intent | None]":
        if self.down:
            raise SourceDown("intents")
        self.seen.append(text)
        return asyncio.ensure_future(self._later(text))

    async def _later(self, text: str) -> Intent | None:
        await asyncio.sleep(self.seconds)
        name = "coding" if "code" in text else "writing"
        return Intent(name, 0.9, 0.5, name)


class Nowhere:
    def place(self, *_: object) -> Place | None:
        return None


class Slow(MemorySessions):
    """Sessions that take their time, or are not there."""

    remote = True
    seconds = 0.0
    down = False

    async def binding(self, key: str) -> Binding | None:
        await asyncio.sleep(self.seconds)
        if self.down:
            raise SourceDown("sessions")
        return await super().binding(key)


class World:
    def __init__(
        self,
        *nodes: Node,
        deadline_ms: float = 50.0,
        rules: Rules = RULES,
        settings: config.Config | None = None,
        **server: Any,
    ) -> None:
        self.meanings = Meanings()
        self.sessions = Slow(config.Sessions())
        self.metrics = Metrics()
        self.fleet = LiveFleet(nodes or (CODE, TALK), rules.watermarks)
        self.router = Router(
            settings
            or config.Config(
                server=config.Server(deadline_ms=deadline_ms, **server),
                envoy=config.Envoy(message_timeout_ms=4 * deadline_ms),
                rules=rules,
            ),
            gather=Gather(self.meanings, Nowhere(), self.sessions),  # type: ignore[arg-type]
            sessions=self.sessions,
            fleet=self.fleet,
            metrics=self.metrics,
            bundle="b1",
            secret=b"secret",
            address=lambda *_: None,
        )

    async def ask(self, body: Any = None, path: str = "/v1/chat/completions", **headers: str) -> Route | Refuse:
        lines = {":method": "POST", ":path": path, **{name.replace("_", "-"): v for name, v in headers.items()}}
        raw = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        answer = await self.router.route(Decide(lines, {}, None, raw, rewritable=True))
        await asyncio.sleep(0)  # the books are kept after the answer
        assert isinstance(answer, (Route, Refuse))
        return answer

    def counted(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(name, labels) or 0.0


def chat(text: str, model: str = "auto") -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": text}]}


async def test_the_answer_says_node_pool_region_intent_tier_confidence_bundle_and_session():
    answer = await World().ask(chat("some code please, a function that sorts a list", "coder"))
    assert isinstance(answer, Route)
    session = answer.headers[names.SESSION]
    assert answer == Route(
        node=CODE.address,
        headers={
            names.ENDPOINT: CODE.address,
            names.SESSION: session,
            names.POOL: "code",
            names.TIER: "normal",
            names.CONFIDENCE: "0.90",
            names.INTENT: "coding",
            names.REGION: "eu",
            names.BUNDLE: "b1",
        },
    )
    assert len(session) == 32


async def test_a_clients_copy_of_our_headers_is_overwritten_or_taken_away():
    answer = await World().ask(path="/v1/models", **{name.replace("-", "_"): "fake" for name in names.OURS})
    assert isinstance(answer, Route)
    for name in names.OURS:
        assert (name in answer.headers) != (name in answer.remove)
    assert "fake" not in answer.headers.values()


async def test_a_tenants_requests_stay_where_the_rule_says_and_the_refusal_says_why():
    """The gateway's header decides; a line a client adds to it, or leaves out, frees nobody."""
    here = config.Config(
        sessions=config.Sessions(tenant_header="x-tenant"),
        rules=Rules(residency=(Residency(tenants=("acme",), stay=("DE",)),)),
    )
    fleet = (Node(address="10.0.0.1:8000", country="DE"), Node(address="10.0.0.2:8000", country="US"))
    german, american = World(fleet[0], fleet[1], settings=here), World(fleet[1], settings=here)
    for tenant in ("acme", "other, acme", " acme ,", ""):
        assert (await german.ask(chat("hi", "m"), x_tenant=tenant)).node == "10.0.0.1:8000"
        refused = await american.ask(chat("hi", "m"), x_tenant=tenant)
        assert isinstance(refused, Refuse)
        assert (refused.status, refused.reason) == (503, "residency")
        assert "must stay in DE (data residency)" in refused.message
        assert refused.headers["retry-after"]
    assert (await american.ask(chat("hi", "m"), x_tenant="other")).node == "10.0.0.2:8000"
    assert american.counted("isogloss_sheds_total", reason="residency") == 4


async def test_auto_becomes_the_pools_model_and_no_other_byte_changes():
    body = b'{ "seed": 9007199254740993,"model":"auto" , "messages":[{"role":"user","content":"code, sort it"}]}'
    answer = await World().ask(body)
    assert isinstance(answer, Route)
    assert answer.body == body.replace(b'"auto"', b'"coder"')


async def test_a_named_model_is_left_alone():
    answer = await World().ask(chat("code, a sorting function in it", "talker"))
    assert isinstance(answer, Route)
    assert (answer.node, answer.body) == (TALK.address, None)


async def test_an_unknown_model_gets_vllms_own_404():
    answer = await World().ask(chat("hello", "nope"))
    assert answer == Refuse(
        status=404,
        message="The model `nope` does not exist. Valid aliases: coder, talker.",
        reason="unknown-model",
        param="model",
    )


async def test_no_node_is_503_with_retry_after():
    world = World(Node(address="10.0.0.1:8000", draining=True))
    answer = await world.ask(chat("hello", "x"))
    assert isinstance(answer, Refuse)
    assert (answer.status, answer.headers) == (503, {"retry-after": "1"})
    assert world.counted("isogloss_sheds_total", reason="no-nodes") == 1


async def test_malformed_json_passes_through_and_is_counted():
    world = World()
    answer = await world.ask(b'{"messages": [')
    assert isinstance(answer, Route)
    assert answer.body is None
    assert names.INTENT not in answer.headers
    assert world.counted("isogloss_events_total", event="malformed-body") == 1


async def test_malformed_json_is_refused_where_the_operator_says_so():
    answer = await World(reject_malformed=True).ask(b'{"messages": [')
    assert isinstance(answer, Refuse)
    assert answer.status == 400
    assert isinstance(await World(reject_malformed=True).ask(path="/v1/models"), Route)


@pytest.mark.parametrize("odd", [b'"t": NaN', b'"t": 1e999', b'"\\ud83d": 1', b'"\\udc00\\ud83d": {"model": "x"}'])
async def test_auto_is_spliced_in_what_only_a_lenient_reader_reads_too(odd):
    body = b"{" + odd + b', "model": "auto", "messages": [{"role": "user", "content": "code, a sorting function"}]}'
    answer = await World().ask(body)
    assert isinstance(answer, Route)
    assert (answer.node, answer.body) == (CODE.address, body.replace(b'"auto"', b'"coder"'))


async def test_auto_that_cannot_be_spliced_is_the_pods_to_answer():
    body = json.dumps(chat("code, a sorting function in it")).encode("utf-16")
    answer = await World().ask(body)
    assert isinstance(answer, Route)
    assert (answer.node, answer.body) == (CODE.address, None)


async def test_auto_in_a_body_too_large_for_the_lenient_reader_is_routed_as_unread():
    body = b'{"t": NaN, "model": "auto", "x": "' + b"x" * 300_000 + b'"}'
    answer = await World().ask(body)
    assert isinstance(answer, Route)
    assert answer.body is None


async def test_auto_in_a_form_becomes_the_pools_model():
    body = b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nauto\r\n--b--\r\n'
    answer = await World().ask(body, "/v1/audio/transcriptions", content_type="multipart/form-data; boundary=b")
    assert isinstance(answer, Route)
    assert (answer.node, answer.body) == (TALK.address, body.replace(b"auto", b"talker"))


PACKERS = {"gzip": gzip.compress, "deflate": zlib.compress, "br": brotli.compress, "zstd": zstd.compress}


@pytest.mark.parametrize("encoding", PACKERS)
async def test_a_compressed_body_is_read_and_goes_on_as_it_is(encoding):
    words = "code, a function that sorts a list"
    for model, node in (("talker", TALK), ("coder", CODE), ("auto", CODE)):
        world = World()
        body = PACKERS[encoding](json.dumps(chat(words, model)).encode())
        answer = await world.ask(body, content_encoding=encoding)
        assert isinstance(answer, Route)
        assert (answer.node, answer.body) == (node.address, None)
        assert answer.headers[names.INTENT] == "coding"
        assert world.meanings.seen == [words]


async def test_a_compressed_model_nobody_serves_is_still_a_404():
    answer = await World().ask(gzip.compress(json.dumps(chat("hello", "nope")).encode()), content_encoding="gzip")
    assert isinstance(answer, Refuse)
    assert answer.status == 404


async def test_identity_is_no_encoding():
    answer = await World().ask(json.dumps(chat("code, a sorting function")).encode(), content_encoding="identity")
    assert isinstance(answer, Route)
    assert b'"coder"' in (answer.body or b"")


PLAIN = json.dumps(chat("code, a sorting function", "coder")).encode()
CLOSED = {
    "two encodings": ("gzip, br", brotli.compress(gzip.compress(PLAIN)), "body-encoding-unknown"),
    "an unknown one": ("compress", PLAIN, "body-encoding-unknown"),
    "a wrong label": ("gzip", PLAIN, "body-damaged"),
    "another's label": ("br", gzip.compress(PLAIN), "body-damaged"),
    "cut off": ("zstd", zstd.compress(PLAIN)[:-3], "body-damaged"),
    "a bomb": ("gzip", gzip.compress(bytes(20 * 1024 * 1024)), "body-unpacks-too-large"),
}


@pytest.mark.parametrize("name", CLOSED)
async def test_a_body_that_stays_closed_is_routed_by_its_headers_and_counted(name):
    encoding, body, event = CLOSED[name]
    world = World(deadline_ms=5000.0)
    answer = await world.ask(body, content_encoding=encoding, x_route_hint="node=10.0.0.2:8000")
    assert isinstance(answer, Route)
    assert (answer.node, answer.body) == (TALK.address, None)
    assert world.meanings.seen == []
    assert world.counted("isogloss_events_total", event=event) == 1


async def test_unpacking_takes_half_of_our_time_at_most():
    world = World(deadline_ms=40.0)
    began = time.monotonic()
    answer = await world.ask(gzip.compress(b"") * 400_000, content_encoding="gzip")
    assert time.monotonic() - began < 0.2
    assert isinstance(answer, Route)
    assert world.counted("isogloss_events_total", event="body-unpacks-too-slowly") == 1


async def test_what_unpacks_to_no_json_is_malformed():
    world = World()
    assert isinstance(await world.ask(gzip.compress(b"{"), content_encoding="gzip"), Route)
    assert world.counted("isogloss_events_total", event="malformed-body") == 1


async def test_a_compressed_body_no_api_reads_is_not_unpacked():
    world = World()
    assert isinstance(await world.ask(b"no gzip at all", path="/v1/anything", content_encoding="gzip"), Route)
    assert world.counted("isogloss_events_total", event="body-damaged") == 0


async def test_an_own_path_is_read_as_configured():
    paths = {"/my/api/": config.server.OwnApi(text="/payload/q", model="/payload/model")}
    world = World(paths=paths)
    body = {"payload": {"q": "code, a function that sorts a list", "model": "auto"}}
    answer = await world.ask(body, path="/my/api")
    assert isinstance(answer, Route)
    assert (answer.node, answer.headers[names.INTENT]) == (CODE.address, "coding")
    assert json.loads(answer.body or b"") == {"payload": body["payload"] | {"model": "coder"}}


async def test_a_slow_encoder_costs_its_intent_and_not_the_deadline():
    world = World(deadline_ms=30.0)
    world.meanings.seconds = 5.0
    began = time.monotonic()
    answer = await world.ask(chat("code, a sorting function in it"))
    assert time.monotonic() - began < 1.0
    assert isinstance(answer, Route)
    assert (answer.headers[names.TIER], names.INTENT in answer.headers) == ("degraded", False)
    assert answer.headers[names.NOTICE] == "data-may-be-limited"
    assert world.counted("isogloss_source_missing_total", source="intents") == 1


async def test_a_full_encoder_costs_its_intent_only():
    world = World()
    world.meanings.down = True
    answer = await world.ask(chat("code, a sorting function in it"))
    assert isinstance(answer, Route)
    assert answer.headers[names.TIER] == "degraded"


@pytest.mark.parametrize("how", [{"seconds": 5.0}, {"down": True}])
async def test_sessions_that_are_slow_or_down_cost_affinity_only(how):
    world = World()
    for name, value in how.items():
        setattr(world.sessions, name, value)
    began = time.monotonic()
    answer = await world.ask(chat("code, a sorting function in it"), x_session_id="s1")
    assert time.monotonic() - began < 1.0
    assert isinstance(answer, Route)
    assert (answer.node, answer.headers[names.SESSION]) == (CODE.address, "s1")
    assert world.counted("isogloss_source_missing_total", source="sessions") == 1


async def test_a_new_session_is_not_looked_up():
    world = World()
    world.sessions.down = True
    answer = await world.ask(chat("code, a sorting function in it"))
    assert isinstance(answer, Route)
    assert answer.headers[names.TIER] == "normal"


async def test_the_returned_session_leads_back_to_the_same_node():
    nodes = [Node(address=f"10.0.0.{i}:8000") for i in range(1, 9)]
    world = World(*nodes)
    first = await world.ask(chat("tell me about it, please do tell me", "m"))
    assert isinstance(first, Route)
    for _ in range(8):
        again = await world.ask(chat("and more about it, please", "m"), x_session_id=first.headers[names.SESSION])
        assert isinstance(again, Route)
        assert again.node == first.node
    elsewhere = {(await world.ask(chat("tell me about it", "m"))).node for _ in range(40)}  # type: ignore[union-attr]
    assert len(elsewhere) > 1


async def test_a_path_that_asks_no_model_is_routed_and_not_remembered():
    world = World()
    assert isinstance(await world.ask(path="/v1/models", x_session_id="s1"), Route)
    assert not world.sessions._bindings


async def test_an_older_context_is_counted_or_refused():
    world = World()
    await world.ask(chat("tell me about it", "coder"), x_session_id="s1", x_context_version="5")
    assert isinstance(await world.ask(chat("x", "coder"), x_session_id="s1", x_context_version="4"), Route)
    assert world.counted("isogloss_events_total", event="context-conflict") == 1
    strict = World(rules=Rules(strict_context=True))
    await strict.ask(chat("tell me about it", "coder"), x_session_id="s1", x_context_version="5")
    refused = await strict.ask(chat("x", "coder"), x_session_id="s1", x_context_version="4")
    assert isinstance(refused, Refuse)
    assert refused.status == 409


async def test_what_we_sent_shows_in_the_next_decision():
    world = World(*(Node(address=f"10.0.0.{i}:8000") for i in range(4)), rules=Rules(strategy="least_request"))
    picked = [(await world.ask(chat("hello", "m"))).node for _ in range(40)]  # type: ignore[union-attr]
    assert {picked.count(node) for node in set(picked)} == {10}


async def test_the_next_best_nodes_are_named_only_where_the_operator_says_so():
    nodes = [Node(address=f"10.0.0.{i}:8000") for i in range(1, 5)]
    alone = await World(*nodes).ask(chat("hello", "m"))
    listed = await World(*nodes, rules=Rules(fallbacks=2)).ask(chat("hello", "m"))
    assert isinstance(alone, Route)
    assert isinstance(listed, Route)
    assert alone.node.count(",") == 0
    assert len(set(listed.node.split(","))) == 3
    assert listed.headers[names.ENDPOINT] == listed.node


async def test_neither_prompt_nor_session_is_logged(caplog):
    caplog.set_level("DEBUG")
    world = World()
    await world.ask(chat("a very secret prompt"), x_session_id="secret-session")
    await world.ask(b"secret", x_session_id="secret-session")
    assert "secret" not in caplog.text


async def test_explain_takes_the_decision_and_leaves_no_trace():
    world = World()
    asked = Decide(
        {":method": "POST", ":path": "/v1/chat/completions"},
        {},
        None,
        json.dumps(chat("code, a function")).encode(),
        True,
    )
    told = await world.router.explain(asked)
    assert isinstance(told.answer, Route)
    assert told.answer.node == CODE.address
    assert told.explanation.candidates[0].address == CODE.address
    assert not world.sessions._bindings
    assert world.fleet.fleet.sent.sum() == 0


async def test_a_long_prompt_goes_where_its_beginning_was_read_and_no_other_tenants_does():
    nodes = tuple(Node(address=f"10.0.0.{i}:8000") for i in range(1, 5))
    world = World(*nodes, rules=Rules(strategy="time_to_first_token"))
    text = "a long document " * 2000

    async def sent(question: str, token: str) -> str:
        body = json.dumps({"messages": [{"role": "user", "content": text + question}]}).encode()
        headers = {":method": "POST", ":path": "/v1/chat/completions", "authorization": token}
        answer = await world.router.route(Decide(headers, {}, None, body, True))
        assert isinstance(answer, Route)
        return answer.node

    first = await sent("who?", "one")
    for node in nodes:
        if node.address != first:
            world.fleet.sent(node.address, 0.0, 1.0)  # idle, but known
    world.fleet.tick(1e9)  # everything read by now
    assert {await sent(f"and {i}?", "one") for i in range(3)} == {first}
    page = world.metrics.page().decode()
    assert 'isogloss_prefix_blocks_total{kind="cached"} 45.0' in page
    assert len({await sent(f"{i}?", "two") for i in range(2)} | {first}) > 1
