"""The clients most people have: the official SDKs, unchanged but for their base URL."""

from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest

from ext_proc import names
from tests.e2e.world import World

ASK: list[Any] = [{"role": "user", "content": "Why is the sky blue?"}]
LIMIT = 64 * 1024


@pytest.fixture
def gpt(world: World) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{world.url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
def claude(world: World) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=world.url, api_key="none", max_retries=0) as client:
        yield client


def test_openai_chat(gpt: openai.OpenAI) -> None:
    answer = gpt.chat.completions.create(model="standin", messages=ASK, max_tokens=5)
    assert answer.choices[0].message.content == " the answer depends on where"
    assert answer.usage
    assert answer.usage.completion_tokens == 5


def test_openai_chat_streamed(gpt: openai.OpenAI) -> None:
    options: Any = {"include_usage": True}
    chunks = list(
        gpt.chat.completions.create(model="standin", messages=ASK, max_tokens=5, stream=True, stream_options=options)
    )
    words = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices]
    assert "".join(filter(None, words)) == " the answer depends on where"
    assert chunks[-1].usage
    assert chunks[-1].usage.completion_tokens == 5


def test_openai_completions(gpt: openai.OpenAI) -> None:
    assert gpt.completions.create(model="standin", prompt="Why?", max_tokens=2).choices[0].text == " the answer"
    chunks = gpt.completions.create(model="standin", prompt=["Why?"], max_tokens=2, stream=True)
    assert "".join(chunk.choices[0].text for chunk in chunks) == " the answer"


def test_openai_embeddings(gpt: openai.OpenAI) -> None:
    answer = gpt.embeddings.create(model="standin", input=["a", "b"], encoding_format="float")
    assert [entry.index for entry in answer.data] == [0, 1]
    assert len(answer.data[0].embedding) == 4


def test_openai_responses(gpt: openai.OpenAI) -> None:
    answer = gpt.responses.create(model="standin", input="Why?", instructions="Be brief.", max_output_tokens=3)
    assert answer.output_text == " the answer depends"


def test_openai_responses_streamed(gpt: openai.OpenAI) -> None:
    events = list(gpt.responses.create(model="standin", input=ASK, max_output_tokens=3, stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == " the answer depends"
    assert events[-1].type == "response.completed"
    assert events[-1].response.output_text == " the answer depends"


@pytest.mark.parametrize("size", [1000, 4_000_000])
def test_openai_speech(world: World, gpt: openai.OpenAI, marker: str, size: int) -> None:
    answer = gpt.audio.transcriptions.create(
        model="standin", file=("a.wav", bytes(size)), prompt="Curie, Ångström", extra_headers={"x-request-id": marker}
    )
    assert answer.text.startswith(" the answer")
    assert world.last(marker).model == "standin"


def test_openai_models(gpt: openai.OpenAI) -> None:
    assert [model.id for model in gpt.models.list()] == ["standin"]


def test_openai_lets_us_choose_the_model(world: World, gpt: openai.OpenAI) -> None:
    if world.mode == "headers":
        pytest.skip("headers-only sees no body; pods may list `auto` as an alias")
    assert gpt.chat.completions.create(model="auto", messages=ASK, max_tokens=2).model == "standin"
    assert gpt.responses.create(model="auto", input="Why?", max_output_tokens=2).model == "standin"
    assert gpt.embeddings.create(model="auto", input="a", encoding_format="float").model == "standin"
    assert gpt.audio.transcriptions.create(model="auto", file=("a.wav", b"RIFF")).text


def test_openai_sees_the_decision_in_the_headers(gpt: openai.OpenAI) -> None:
    answer = gpt.chat.completions.with_raw_response.create(model="standin", messages=ASK, max_tokens=2)
    assert answer.headers[names.POOL] == "general"


@pytest.mark.parametrize("stream", [False, True])
def test_openai_an_unknown_model_is_its_own_not_found(gpt: openai.OpenAI, stream: bool) -> None:
    with pytest.raises(openai.NotFoundError) as chat:
        gpt.chat.completions.create(model="nope", messages=ASK, stream=stream)
    with pytest.raises(openai.NotFoundError):
        gpt.responses.create(model="nope", input="Why?", stream=stream)
    assert "The model `nope` does not exist. Valid aliases: standin." in chat.value.message
    assert (chat.value.param, chat.value.type, str(chat.value.code)) == ("model", "NotFoundError", "404")


def test_anthropic_messages(claude: anthropic.Anthropic) -> None:
    answer = claude.messages.create(model="standin", messages=ASK, system="Be brief.", max_tokens=3)
    assert answer.content[0].type == "text"
    assert answer.content[0].text == " the answer depends"
    assert answer.usage.output_tokens == 3


def test_anthropic_counts_tokens(claude: anthropic.Anthropic) -> None:
    assert claude.messages.count_tokens(model="standin", messages=ASK).input_tokens > 5


def test_anthropic_messages_streamed(claude: anthropic.Anthropic) -> None:
    with claude.messages.stream(model="standin", messages=ASK, max_tokens=3) as stream:
        assert "".join(stream.text_stream) == " the answer depends"
        assert stream.get_final_message().usage.output_tokens == 3


def test_anthropic_lets_us_choose_the_model(world: World, claude: anthropic.Anthropic) -> None:
    if world.mode == "headers":
        pytest.skip("headers-only sees no body; pods may list `auto` as an alias")
    assert claude.messages.create(model="auto", messages=ASK, max_tokens=2).model == "standin"


def test_anthropic_an_unknown_model_is_its_own_not_found(claude: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.NotFoundError, match="The model `nope` does not exist"):
        claude.messages.create(model="nope", messages=ASK, max_tokens=3)
    with (
        pytest.raises(anthropic.NotFoundError, match="The model `nope` does not exist"),
        claude.messages.stream(model="nope", messages=ASK, max_tokens=3) as stream,
    ):
        stream.until_done()


@pytest.mark.parametrize("mode", ["buffered", "duplex"])
def test_too_large_a_body_is_a_413_of_the_sdks_own(new_world: Any, mode: str) -> None:
    world: World = new_world(mode, settings={"server": {"limits": {"body_bytes": LIMIT}}})
    large: list[Any] = [{"role": "user", "content": "x" * LIMIT}]
    for stream in (False, True):
        with (
            openai.OpenAI(base_url=f"{world.url}/v1", api_key="none") as gpt,
            pytest.raises(openai.APIStatusError) as no,
        ):
            gpt.chat.completions.create(model="standin", messages=large, stream=stream)
        assert (no.value.status_code, no.value.type) == (413, "PayloadTooLargeError")
        assert "over the limit of 65536 bytes" in no.value.message
    with (
        anthropic.Anthropic(base_url=world.url, api_key="none") as claude,
        pytest.raises(anthropic.RequestTooLargeError, match="over the limit of 65536 bytes"),
    ):
        claude.messages.create(model="standin", messages=large, max_tokens=3)


def test_no_node_is_a_503_the_sdks_retry_and_then_say(new_world: Any) -> None:
    world: World = new_world(pods=0, others=({"address": "127.0.0.1:9", "draining": True},))
    for stream in (False, True):
        before = asked(world)
        with (
            openai.OpenAI(base_url=f"{world.url}/v1", api_key="none", max_retries=1) as gpt,
            pytest.raises(openai.InternalServerError, match="No node is available") as no,
        ):
            gpt.chat.completions.create(model="standin", messages=ASK, stream=stream)
        assert (no.value.status_code, no.value.type) == (503, "ServiceUnavailableError")
        assert asked(world) - before == 2
    before = asked(world)
    with (
        anthropic.Anthropic(base_url=world.url, api_key="none", max_retries=1) as claude,
        pytest.raises(anthropic.InternalServerError, match="No node is available"),
    ):
        claude.messages.create(model="standin", messages=ASK, max_tokens=3)
    assert asked(world) - before == 2


def asked(world: World) -> int:
    """Requests Envoy has answered with a 5xx so far."""
    stats = world.envoy.stats("downstream_rq_5xx")
    return max(value for name, value in stats.items() if "admin" not in name)  # counted by listener and manager alike
