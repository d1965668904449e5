"""The demo's requests: prompts with known intents, from clients with known places, some of them conversations."""

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import httpx

from ext_proc import names
from tests.demo.clients import Network, networks
from tests.standin.pod import FROM

PROMPTS = Path(__file__).resolve().parents[2] / "models" / "data" / "heldout.jsonl"
FOLLOW_UPS = (
    "Why?",
    "Can you make that shorter?",
    "And another example, please.",
    "Thanks! Anything to watch out for?",
)
AT_ONCE = 12
TOKENS = 6


@dataclass
class Conversation:
    """One client's turns."""

    intent: str
    turns: list[str]
    client: Network
    address: str


@dataclass
class Answer:
    """What came back for one turn."""

    conversation: Conversation
    turn: int
    status: int
    first_token_s: float
    node: str
    model: str
    said: dict[str, str] = field(default_factory=dict)


def conversations(seed: int = 2) -> list[Conversation]:
    """Every prompt from two places, and three conversations an intent. The same ones each time."""
    chance = Random(seed)
    prompts = [json.loads(line) for line in PROMPTS.read_text().splitlines() if line.strip()]
    world = networks()
    by_continent = {c: [n for n in world if n.continent == c] for c in sorted({n.continent for n in world})}
    everywhere = _round(by_continent, chance)
    made = [_one(prompt["intent"], [prompt["text"]], next(everywhere), chance) for prompt in prompts * 2]
    for intent in sorted({prompt["intent"] for prompt in prompts}):
        texts = [prompt["text"] for prompt in prompts if prompt["intent"] == intent]
        begun = chance.sample(texts, 3)
        made += [_one(intent, [text, *FOLLOW_UPS], next(everywhere), chance) for text in begun]
    chance.shuffle(made)
    return made


async def send(url: str, talks: list[Conversation], tick: Callable[[], None], *, routed: bool) -> list[Answer]:
    """All conversations, a few at once, turn by turn. Unrouted ones name no model: any pod takes them."""
    gate = asyncio.Semaphore(AT_ONCE)
    answers: list[Answer] = []
    async with httpx.AsyncClient(base_url=url, timeout=60, verify=False) as client:

        async def talk(conversation: Conversation) -> None:
            async with gate:
                async for answer in _turns(client, conversation, routed):
                    answers.append(answer)
                    tick()

        async with asyncio.TaskGroup() as group:
            for conversation in talks:
                group.create_task(talk(conversation))
    return answers


async def _turns(client: httpx.AsyncClient, talk: Conversation, routed: bool) -> Any:
    messages: list[dict[str, str]] = []
    session: str | None = None
    for turn, text in enumerate(talk.turns):
        messages.append({"role": "user", "content": text})
        headers = {"x-forwarded-for": talk.address, FROM: f"{talk.client.latitude},{talk.client.longitude}"}
        if session:
            headers[names.SESSION] = session
        answer, said = await ask(client, messages, headers, "auto" if routed else None)
        session = answer.headers.get(names.SESSION)
        messages.append({"role": "assistant", "content": said.text})
        yield Answer(
            conversation=talk,
            turn=turn,
            status=answer.status_code,
            first_token_s=said.first_s,
            node=answer.headers.get(names.NODE, ""),
            model=said.model,
            said={key: value for key, value in answer.headers.items() if key.startswith("x-isogloss")},
        )


@dataclass
class Said:
    """A streamed answer, read."""

    first_s: float
    text: str = ""
    model: str = ""


async def ask(
    client: httpx.AsyncClient, messages: list[dict[str, str]], headers: dict[str, str], model: str | None
) -> tuple[httpx.Response, Said]:
    """One streamed chat request; *first_s* is the time to its first token."""
    body = {"messages": messages, "max_tokens": TOKENS, "stream": True} | ({"model": model} if model else {})
    began = time.perf_counter()
    said = Said(0.0)
    async with client.stream("POST", "/v1/chat/completions", json=body, headers=headers) as answer:
        async for line in answer.aiter_lines():
            if line.startswith("data: {"):
                event = json.loads(line[6:])
                said.model = event.get("model", "")
                word = "".join(choice["delta"].get("content", "") for choice in event.get("choices", []))
                if word and not said.first_s:
                    said.first_s = time.perf_counter() - began
                said.text += word
    return answer, said


async def in_path(url: str, plain_url: str, rounds: int, tick: Callable[[], None]) -> tuple[list[float], list[float]]:
    """Times to the first token without distance, one request at a time, by turns with and without us; texts are new."""
    with_us: list[float] = []
    without: list[float] = []
    async with (
        httpx.AsyncClient(base_url=url, timeout=60, verify=False) as client,
        httpx.AsyncClient(base_url=plain_url, timeout=60, verify=False) as plain,
    ):
        for i in range(rounds):
            messages = [{"role": "user", "content": f"How long does it take to walk {i + 11} kilometres in the hills?"}]
            for where, times, model in ((client, with_us, "auto"), (plain, without, None)):
                _, said = await ask(where, messages, {"x-forwarded-for": "128.32.1.1"}, model)
                times.append(said.first_s)
            tick()
    return with_us[5:], without[5:]


def _round(by_continent: dict[str, list[Network]], chance: Random) -> Iterator[Network]:
    """Continents in turn, a network of each by chance: everybody is heard."""
    while True:
        for there in by_continent.values():
            yield chance.choice(there)


def _one(intent: str, turns: list[str], client: Network, chance: Random) -> Conversation:
    return Conversation(intent=intent, turns=turns, client=client, address=client.somebody(chance))
