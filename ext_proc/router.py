"""From a question of Envoy's to its answer: parse, gather, decide, and remember."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from msgspec import structs

from ext_proc import names, parse, prefix, unpack
from ext_proc.config import Config
from ext_proc.gather import Gather
from ext_proc.observe.metrics import Metrics
from ext_proc.parse import Parsed
from ext_proc.parse.own import Own
from ext_proc.prefix import BLOCK_BYTES
from ext_proc.protocol import Answer, Decide, Refuse, Route
from ext_proc.sources.sessions import Session, Sessions, identify
from ext_proc.usage import Usage
from policy.engine import Explanation, decide, explain
from policy.kvcache import BLOCK_TOKENS, Block
from policy.live import LiveFleet
from policy.types import Binding, Decision, Features, Shed

RETRY_AFTER_S = 1
LOW_CONFIDENCE = 0.5
CHARACTERS_A_TOKEN = 8
"""Of an encoder's window; generous, so that the encoder and not the character count does the cutting."""
MALFORMED = "The request body is not valid: neither as the JSON nor as the form that its path asks for."
_STATUS: Mapping[str, int] = {
    "no-nodes": 503,
    "subset": 503,
    "residency": 503,
    "hint": 503,
    "unknown-model": 404,
    "context-conflict": 409,
}


class Explained(NamedTuple):
    """Everything one decision was taken from, in the order it came about."""

    parsed: Parsed
    session: Session
    features: Features
    explanation: Explanation
    answer: Answer


class _Facts(NamedTuple):
    session: Session
    features: Features
    blocks: tuple[Block, ...]
    """What the prompt begins with."""


class Router:
    """One question at a time, any number of them at once; collaborators come through the constructor."""

    def __init__(
        self,
        config: Config,
        *,
        gather: Gather,
        sessions: Sessions,
        fleet: LiveFleet,
        metrics: Metrics,
        bundle: str,
        secret: bytes,
        address: Callable[[Mapping[str, str], Mapping[str, str]], object],
    ) -> None:
        self._config = config
        self._gather = gather
        self._sessions = sessions
        self._fleet = fleet
        self._metrics = metrics
        self._bundle = bundle
        self._secret = secret
        self._address = address
        self._paths = {path.rstrip("/"): Own(api.text, api.model) for path, api in config.server.paths.items()}
        self._tenant_header = config.residency_header
        self._turn = 0

    def reads(self, headers: Mapping[str, str]) -> bool:
        """Whether the body says something a decision needs; a file's upload need not wait for us, nor we for it."""
        return parse.reads(headers, self._paths)

    def answered(self, usage: Usage) -> None:
        """What an answer cost."""
        self._metrics.used(usage)

    async def route(self, asked: Decide) -> Answer:
        """Never later than the deadline by more than the decision itself takes."""
        times = [time.perf_counter()]  # uvloop's own clock is good to a millisecond only
        loop = asyncio.get_running_loop()
        until = loop.time() + self._config.server.deadline_ms / 1000.0  # reading a large body counts
        parsed, closed = await self._read(asked, until)
        if closed:
            self._metrics.count(closed)
        if parsed.malformed and self._config.server.reject_malformed:
            self._metrics.read(parsed)
            return self._refused(Refuse(status=400, message=MALFORMED, reason="malformed"))

        times.append(time.perf_counter())
        facts = await self._facts(asked, parsed, until)
        times.append(time.perf_counter())
        outcome = decide(parsed.request, facts.features, self._fleet.fleet, self._config.rules)
        if isinstance(outcome, Shed):
            self._metrics.read(parsed)
            return self._refused(_refusal(outcome))

        answer = self._answer(outcome, parsed, asked, facts.session)
        if not asked.observing:
            self._send(asked, parsed, outcome, facts, loop.time())
        times.append(time.perf_counter())
        # Envoy need not wait for our books: they are kept while it is already sending the request on.
        loop.call_soon(self._note, asked, parsed, outcome, facts, times)
        return answer

    async def explain(self, asked: Decide) -> Explained:
        """The decision `route` would take now, with all that went into it; nothing is counted or remembered."""
        until = asyncio.get_running_loop().time() + self._config.server.deadline_ms / 1000.0
        parsed, _ = await self._read(asked, until)
        session, features, _ = await self._facts(asked, parsed, until)
        explanation = explain(parsed.request, features, self._fleet.fleet, self._config.rules)
        outcome = explanation.outcome
        if isinstance(outcome, Shed):
            return Explained(parsed, session, features, explanation, _refusal(outcome))
        answer = self._answer(outcome, parsed, asked, session)
        return Explained(parsed, session, features, explanation, answer)

    def _blocks(self, asked: Decide, parsed: Parsed) -> tuple[Block, ...]:
        """The prompt's beginning; no two tenants' and no two models' prompts begin alike."""
        if sum(map(len, parsed.prompt)) < BLOCK_BYTES:
            return ()
        tenant = asked.headers.get(self._config.sessions.tenant_header, "")
        return prefix.blocks(parsed.prompt, tenant, parsed.request.model or "")

    async def _read(self, asked: Decide, until: float) -> tuple[Parsed, str]:
        """What the request says, and, where its body stayed closed, why: one word for counters."""
        self._turn += 1
        unread = ""
        if "content-encoding" in asked.headers and parse.is_read(asked, self._paths):
            asked, unread = await self._unpacked(asked, until)
        auto, window = self._config.rules.auto_model, self._config.encoder.tokens * CHARACTERS_A_TOKEN
        parsed = parse.read(
            asked,
            turn=self._turn,
            auto_model=auto,
            window=window,
            paths=self._paths,
            tenant_header=self._tenant_header,
            subset_header=self._config.server.subset_header,
        )
        return parsed, unread

    async def _unpacked(self, asked: Decide, until: float) -> tuple[Decide, str]:
        """As if the body had come plain, but not ours to change. Half our time at most: the sources want theirs."""
        encoding = asked.headers["content-encoding"].strip().lower()
        headers = {name: value for name, value in asked.headers.items() if name != "content-encoding"}
        if encoding in ("", "identity"):
            return structs.replace(asked, headers=headers), ""
        until -= self._config.server.deadline_ms / 2000.0
        most = self._config.server.limits.body_bytes
        try:
            body = await unpack.plain(encoding, asked.body or b"", most=most, until=until)
        except unpack.Unread as why:
            return structs.replace(asked, body=None), str(why)
        return structs.replace(asked, headers=headers, body=body, rewritable=False), ""

    async def _facts(self, asked: Decide, parsed: Parsed, until: float) -> _Facts:
        session = identify(asked.headers, parsed.user, self._client(asked), self._config.sessions, self._secret)
        features = await self._gather.features(parsed, session, asked.headers, asked.attributes, until=until)
        if asked.instead_of is not None and features.binding is not None:
            # The version remembered is that of this very request's first decision: it is no retry for that.
            binding = structs.replace(features.binding, context_version=None)
            features = structs.replace(features, binding=binding)
        if blocks := self._blocks(asked, parsed):
            features = structs.replace(features, cached=self._fleet.cached(blocks))
        return _Facts(session, features, blocks)

    def _send(self, asked: Decide, parsed: Parsed, decision: Decision, facts: _Facts, now: float) -> None:
        """What the very next decision has to know of this one."""
        if asked.instead_of is not None:
            self._metrics.count("decided-again")
            self._fleet.unsent(asked.instead_of, now)
        held = facts.features.cached
        cached = 0.0 if held is None else self._fleet.of(held, decision.node)
        self._fleet.sent(decision.node.address, now, max(0.0, parsed.request.prompt_tokens - cached), facts.blocks)
        self._metrics.prefix(len(facts.blocks), cached / BLOCK_TOKENS)

    def _client(self, asked: Decide) -> object:
        return self._address(asked.headers, asked.attributes) if self._config.sessions.by_address else None

    def _answer(self, decision: Decision, parsed: Parsed, asked: Decide, session: Session) -> Route:
        """The decision as headers and, for `auto`, as the one changed value in the body."""
        node = ",".join([decision.node.address, *(fallback.address for fallback in decision.fallbacks)])
        headers = {
            names.ENDPOINT: node,
            names.SESSION: session.id,
            names.POOL: decision.node.pool,
            names.TIER: decision.tier,
            names.CONFIDENCE: f"{decision.confidence:.2f}",
        }
        if decision.intent is not None:
            headers[names.INTENT] = decision.intent
        if decision.node.region is not None:
            headers[names.REGION] = decision.node.region
        if self._bundle:
            headers[names.BUNDLE] = self._bundle
        if decision.confidence < LOW_CONFIDENCE:
            headers[names.NOTICE] = "data-may-be-limited"
        changed = None
        if decision.model is not None and asked.body is not None and parsed.model_span is not None:
            changed = parsed.with_model(asked.body, decision.model)
        return Route(
            node=node,
            headers=headers,
            # A client's copy of what we did not set must not pass for ours (our Envoy takes them away; others may not).
            remove=tuple(name for name in names.OURS if name in asked.headers and name not in headers),
            body=changed,
        )

    def _refused(self, refuse: Refuse) -> Refuse:
        self._metrics.shed(refuse.reason)
        return refuse

    def _note(self, asked: Decide, parsed: Parsed, decision: Decision, facts: _Facts, times: Sequence[float]) -> None:
        self._metrics.read(parsed)
        self._metrics.decided(decision, facts.features, *times)
        if parsed.request.api is not None and not asked.observing:
            self._remember(facts.session, decision, facts.features, parsed.request.context_version)

    def _remember(self, session: Session, decision: Decision, features: Features, version: int | None) -> None:
        had = features.binding
        before, began = (None, None) if had is None else (had.context_version, had.began)
        newest = max((v for v in (version, before) if v is not None), default=None)
        node = decision.node
        self._sessions.bind(session.key, Binding(node.address, node.key, decision.intent, newest, began))


def _refusal(shed: Shed) -> Refuse:
    status = _STATUS[shed.reason]
    return Refuse(
        status=status,
        message=shed.detail,
        reason=shed.reason,
        param="model" if shed.reason == "unknown-model" else None,
        headers={"retry-after": str(RETRY_AFTER_S)} if status == 503 else {},
    )
