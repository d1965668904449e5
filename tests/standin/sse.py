"""vLLM's streams, event for event."""

import time
from collections.abc import AsyncIterator

from tests.standin.shapes import PRINT, Json, event, name, output, response

Words = AsyncIterator[str]
DONE = b"data: [DONE]\n\n"


async def chat(model: str, words: Words, prompt: int, count: int, with_usage: bool) -> AsyncIterator[bytes]:
    """/v1/chat/completions: the role, a token an event, the reason, the usage, DONE."""
    frame = {
        "id": name("chatcmpl"), "object": "chat.completion.chunk", "created": int(time.time()), "model": model,
    }  # fmt: skip
    role = {"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
    yield event(frame | {"choices": [role], "prompt_token_ids": None, "prompt_text": None})
    sent = 0
    async for word in words:
        sent += 1
        last = {"finish_reason": "length", "stop_reason": None} if sent == count else {"finish_reason": None}
        choice = {"index": 0, "delta": {"content": word}, "logprobs": None} | last | {"token_ids": None}
        tail = {"system_fingerprint": PRINT} if sent == count and not with_usage else {}
        yield event(frame | {"choices": [choice]} | tail)
    if with_usage:
        yield event(frame | _usage(prompt, sent))
    yield DONE


async def completion(model: str, words: Words, prompt: int, count: int, with_usage: bool) -> AsyncIterator[bytes]:
    """/v1/completions."""
    frame = {"id": name("cmpl"), "object": "text_completion", "created": int(time.time()), "model": model}
    sent = 0
    async for word in words:
        sent += 1
        choice = {
            "index": 0, "text": word, "logprobs": None, "finish_reason": "length" if sent == count else None,
            "stop_reason": None, "prompt_token_ids": None, "token_ids": None,
        }  # fmt: skip
        yield event(frame | {"choices": [choice]})
    if with_usage:
        yield event(frame | _usage(prompt, sent))
    yield DONE


async def message(model: str, words: Words, prompt: int) -> AsyncIterator[bytes]:
    """/v1/messages: Anthropic's events, no DONE."""
    start = {
        "id": name("chatcmpl"), "type": "message", "role": "assistant", "content": [], "model": model,
        "stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": prompt, "output_tokens": 0},
    }  # fmt: skip
    yield event({"type": "message_start", "message": start}, "message_start")
    block = {"type": "content_block_start", "content_block": {"type": "text", "text": ""}, "index": 0}
    yield event(block, "content_block_start")
    sent = 0
    async for word in words:
        sent += 1
        delta = {"type": "content_block_delta", "delta": {"type": "text_delta", "text": word}, "index": 0}
        yield event(delta, "content_block_delta")
    yield event({"type": "content_block_stop", "index": 0}, "content_block_stop")
    stop = {"stop_reason": "max_tokens", "stop_sequence": None}
    spent = {"input_tokens": prompt, "output_tokens": sent}
    yield event({"type": "message_delta", "delta": stop, "usage": spent}, "message_delta")
    yield event({"type": "message_stop"}, "message_stop")


async def responses(model: str, words: Words, prompt: int) -> AsyncIterator[bytes]:
    """/v1/responses: numbered events from created to completed."""
    ident, item = name("resp").replace("-", "_"), name("msg").replace("-", "_")
    number = -1

    def numbered(kind: str, body: Json) -> bytes:
        nonlocal number
        number += 1
        return event(body | {"sequence_number": number, "type": kind}, kind)

    begun = {"response": response(model, ident, [], None)}
    yield numbered("response.created", begun)
    yield numbered("response.in_progress", begun)
    empty = {"id": item, "content": [], "role": "assistant", "status": "in_progress", "type": "message"}
    yield numbered("response.output_item.added", {"item": empty, "output_index": 0})
    at = {"content_index": 0, "item_id": item, "output_index": 0}
    part = {"annotations": [], "text": "", "type": "output_text", "logprobs": []}
    yield numbered("response.content_part.added", at | {"part": part})
    text = ""
    sent = 0
    async for word in words:
        sent += 1
        text += word
        yield numbered("response.output_text.delta", at | {"delta": word, "logprobs": []})
    yield numbered("response.output_text.done", at | {"logprobs": [], "text": text})
    yield numbered("response.content_part.done", at | {"part": part | {"text": text}})
    done = output(text, item, "completed")
    yield numbered("response.output_item.done", {"item": done, "output_index": 0})
    yield numbered("response.completed", {"response": response(model, ident, [done], (prompt, sent))})


def _usage(prompt: int, sent: int) -> Json:
    return {
        "choices": [],
        "usage": {"prompt_tokens": prompt, "total_tokens": prompt + sent, "completion_tokens": sent},
        "system_fingerprint": PRINT,
    }
