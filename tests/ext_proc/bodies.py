"""Bodies as clients send them, by API: each with the words that should be read and the modality that should be seen.

The shapes are those of the APIs' references and of field reports; a body no pod would take is among them on purpose.
"""

# ruff: noqa: E501 - a row a line

from typing import Any

Q = "Why is the sky blue at noon and red at dusk?"
PIXEL = "data:image/png;base64,iVBORw0KGgo="
SOUND = {"data": "UklGRg==", "format": "wav"}
WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}

Row = tuple[dict[str, Any], str, str]


def user(content: Any, **more: Any) -> dict[str, Any]:
    """A user's message."""
    return {"role": "user", "content": content, **more}


def text(words: str, kind: str = "text") -> dict[str, str]:
    """A text part."""
    return {"type": kind, "text": words}


def assistant(content: Any, **more: Any) -> dict[str, Any]:
    """A model's message."""
    return {"role": "assistant", "content": content, **more}


def chat(*messages: Any, **more: Any) -> dict[str, Any]:
    """A chat or Messages body."""
    return {"model": "m", "messages": list(messages), **more}


def said(items: Any, **more: Any) -> dict[str, Any]:
    """A Responses body."""
    return {"model": "m", "input": items, **more}


_CALL = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Lima"}'}}
_FILE = {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0="}}

CHAT: list[Row] = [
    (chat(user(Q)), Q, "text"),
    (chat(user(Q), stream=True, stream_options={"include_usage": True}), Q, "text"),
    (chat({"role": "system", "content": "Be a pirate."}, user(Q)), Q, "text"),
    (chat({"role": "developer", "content": "Be a pirate."}, user(Q)), Q, "text"),
    (chat(user(Q), assistant("Scattering.")), Q, "text"),
    (chat(user([text(Q)])), Q, "text"),
    (chat(user([text("Why is the sky"), text("blue?")])), "Why is the sky blue?", "text"),
    (chat(user([{"text": Q}])), Q, "text"),
    (chat(user([text(Q), {"type": "image_url", "image_url": {"url": PIXEL}}])), Q, "image+text"),
    (chat(user([{"type": "image_url", "image_url": {"url": PIXEL}}, text(Q)])), Q, "image+text"),
    (chat(user([{"type": "image_url", "image_url": {"url": PIXEL, "detail": "high"}}])), "", "image+text"),
    (chat(user([text(Q), {"type": "input_audio", "input_audio": SOUND}])), Q, "audio+text"),
    (chat(user([text(Q), {"type": "video_url", "video_url": {"url": "https://x/y.mp4"}}])), Q, "image+text"),
    (chat(user([text(Q), _FILE])), Q, "text"),
    (
        chat(user(Q), assistant(None, tool_calls=[_CALL]), {"role": "tool", "tool_call_id": "c1", "content": "12 °C"}),
        Q,
        "text",
    ),
    (chat(user(Q), assistant(None, tool_calls=[_CALL]), {"role": "tool", "tool_call_id": "c1"}), Q, "text"),
    (chat(user(Q), tools=[{"type": "function", "function": {"name": "f", "parameters": WEATHER}}]), Q, "text"),
    (chat(user(Q), functions=[{"name": "f", "parameters": WEATHER}], function_call="auto"), Q, "text"),
    (chat(user(Q, name="alice")), Q, "text"),
    (
        chat(user(Q), response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": WEATHER}}),
        Q,
        "text",
    ),
    (chat(user("earlier things"), assistant("ok"), user(Q)), Q, "text"),
    (chat(user(Q), assistant([text("Because")]), user("")), Q, "text"),
    (chat(user(Q), assistant({"weird": 1})), Q, "text"),
    (chat(user(Q), user(None)), Q, "text"),
]

COMPLETIONS: list[Row] = [
    ({"model": "m", "prompt": prompt, **more}, words, "text")
    for prompt, words in [(Q, Q), ([Q], Q), ([Q, "and why?"], Q), (["", Q], Q), ([[1, 2], [3]], ""), ([1, 2, 3], ""), ("", "")]
    for more in ({}, {"suffix": "\nEnd", "echo": True, "n": 4}, {"stream": True, "stop": ["\n"], "logit_bias": {"50256": -100}})
]  # fmt: skip

EMBEDDINGS: list[Row] = [
    ({"model": "m", "input": given, **more}, words, "text")
    for given, words in [(Q, Q), ([Q], Q), ([Q, "b", "c"], Q), (["", Q], Q), ([[1, 2], [3]], ""), ([1, 2], ""), ([], "")]
    for more in ({}, {"encoding_format": "base64", "dimensions": 256}, {"user": "alice", "truncate_prompt_tokens": -1})
] + [
    (chat(user(Q)), Q, "text"),
    (chat(user([text(Q), {"type": "image_url", "image_url": {"url": PIXEL}}])), Q, "image+text"),
    ({"model": "m", "input": None, "messages": [user(Q)]}, Q, "text"),
]  # fmt: skip

_OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "12 °C"}
_CALLED = {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}", "id": "fc_1"}

RESPONSES: list[Row] = [
    (said(Q), Q, "text"),
    (said(Q, instructions="Be a pirate.", temperature=0), Q, "text"),
    (said(Q, stream=True, store=False, previous_response_id="resp_abc"), Q, "text"),
    (said([user(Q)]), Q, "text"),
    (said([{"type": "message", **user(Q)}]), Q, "text"),
    (said([user([text(Q, "input_text")])]), Q, "text"),
    (said([{"type": "message", **user([text(Q, "input_text")])}]), Q, "text"),
    (said([user([text("Why is the sky", "input_text"), text("blue?", "input_text")])]), "Why is the sky blue?", "text"),
    (said([user([text(Q, "input_text"), {"type": "input_image", "image_url": PIXEL}])]), Q, "image+text"),
    (said([user([{"type": "input_image", "file_id": "file-1", "detail": "auto"}])]), "", "image+text"),
    (said([user([text(Q, "input_text"), {"type": "input_audio", "input_audio": SOUND}])]), Q, "audio+text"),
    (
        said([user([{"type": "input_file", "filename": "a.pdf", "file_data": "JVBERi0="}, text(Q, "input_text")])]),
        Q,
        "text",
    ),
    (said([user([text(Q, "input_text"), {"type": "input_file", "file_id": "file-1"}])]), Q, "text"),
    (said([{"role": "developer", "content": "Be a pirate."}, user(Q)]), Q, "text"),
    (said([{"role": "system", "content": [text("Be a pirate.", "input_text")]}, user(Q)]), Q, "text"),
    (said([user(Q), {"type": "message", **assistant([text("Scattering.", "output_text")])}]), Q, "text"),
    (said([user(Q), _CALLED, _OUTPUT], previous_response_id="resp_abc"), Q, "text"),
    (said([_OUTPUT], previous_response_id="resp_abc"), "", "text"),
    (said([{"type": "reasoning", "id": "rs_1", "summary": [text("Hm.", "summary_text")]}, user(Q)]), Q, "text"),
    (said([{"type": "item_reference", "id": "msg_1"}, user(Q)]), Q, "text"),
    (said([text(Q, "input_text")]), Q, "text"),
    (said([Q]), Q, "text"),
    (said(Q, tools=[{"type": "file_search", "vector_store_ids": ["v"]}, {"type": "image_generation"}]), Q, "text"),
    (said(Q, tools=[{"type": "function", "name": "f", "parameters": WEATHER}], tool_choice="auto"), Q, "text"),
    (said([]), "", "text"),
    (said(None, prompt={"id": "pmpt_1", "variables": {"city": "Lima"}}), "", "text"),
]

_PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
_PAPER = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}}
_NOTES = {
    "type": "document",
    "source": {"type": "text", "media_type": "text/plain", "data": "Old notes."},
    "title": "t",
}
_USED = {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Lima"}}
_RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "12 °C and a lot of rain"}

MESSAGES: list[Row] = [
    (body | {"max_tokens": 8}, words, modality)
    for body, words, modality in [
        (chat(user(Q)), Q, "text"),
        (chat(user(Q), system="Be a pirate."), Q, "text"),
        (chat(user(Q), system=[text("Be a pirate.")]), Q, "text"),
        (chat(user(Q), system=[text("Be.") | {"cache_control": {"type": "ephemeral"}}, text("Kind.")]), Q, "text"),
        (chat(user([text(Q)])), Q, "text"),
        (chat(user([text(Q) | {"cache_control": {"type": "ephemeral"}}])), Q, "text"),
        (chat(user([_PICTURE, text(Q)])), Q, "image+text"),
        (chat(user([_PICTURE])), "", "image+text"),
        (chat(user([{"type": "image", "source": {"type": "url", "url": "https://x/y.png"}}, text(Q)])), Q, "image+text"),
        (chat(user([{"type": "image", "source": {"type": "file", "file_id": "f"}}, text(Q)])), Q, "image+text"),
        (chat(user([_PAPER, text(Q)])), Q, "text"),
        (chat(user([_NOTES, text(Q)])), Q, "text"),
        (chat(user(Q), assistant([text("Let me look."), _USED]), user([_RESULT])), Q, "text"),
        (
            chat(user(Q), assistant([_USED]), user([_RESULT | {"content": [text("12 °C, rain, and wind all day long")]}])),
            Q,
            "text",
        ),
        (chat(user(Q), assistant([_USED]), user([_RESULT | {"content": [_PICTURE]}])), Q, "image+text"),
        (chat(user(Q), assistant([_USED]), user([{"type": "tool_result", "tool_use_id": "t1", "is_error": True}])), Q, "text"),
        (chat(user("Hi there."), assistant([_USED]), user([_RESULT, text(Q)])), Q, "text"),
        (chat(user(Q), assistant([{"type": "thinking", "thinking": "Hm.", "signature": "s"}, text("So.")])), Q, "text"),
        (chat(user(Q), assistant("Because of")), Q, "text"),
        (chat(user(Q), tools=[{"name": "weather", "description": "…", "input_schema": WEATHER}]), Q, "text"),
        (chat(user(Q), stream=True, metadata={"user_id": "u"}, thinking={"type": "enabled", "budget_tokens": 9}), Q, "text"),
        (chat(user([{"type": "search_result", "source": "s", "title": "t", "content": [text("old")]}, text(Q)])), Q, "text"),
        (chat(user([])), "", "text"),
        (chat({"role": "system", "content": "Be a pirate."}, user(Q)), Q, "text"),
    ]
]  # fmt: skip

_SCORED = {"content": [{"type": "image_url", "image_url": {"url": PIXEL}}, text("a caption")]}

RERANK: list[Row] = [
    ({"model": "m", "query": query, "documents": documents, "top_n": 2}, words, modality)
    for query, words in [(Q, Q), ({"content": [text(Q)]}, Q), ({"content": Q}, Q), ("", ""), (None, ""), (7, "")]
    for documents, modality in [(["a", "b"], "text"), ([], "text"), ([[1, 2]], "text"), ([_SCORED], "image+text")]
]  # fmt: skip

SCORE: list[Row] = [
    ({"model": "m", first: query, second: other}, words, "text")
    for first, second in [("text_1", "text_2"), ("queries", "documents"), ("queries", "items"), ("data_1", "data_2")]
    for query, words in [(Q, Q), ([Q, "b"], Q), ({"content": [text(Q)]}, Q), ([{"content": [text(Q)]}], Q), ([[1]], "")]
    for other in ("a", ["a", "b"])
]

POOLED: list[Row] = EMBEDDINGS
TOKENIZE: list[Row] = [*COMPLETIONS, *CHAT]
DETOKENIZE: list[Row] = [
    ({"model": "m", "tokens": [1, 2, 3][:n], "user": str(i)}, "", "text") for n in range(4) for i in range(5)
]

BODIES: dict[str, list[Row]] = {
    "/v1/chat/completions": CHAT,
    "/v1/completions": COMPLETIONS,
    "/v1/embeddings": EMBEDDINGS,
    "/v1/responses": RESPONSES,
    "/v1/messages": MESSAGES,
    "/v1/messages/count_tokens": MESSAGES,
    "/v1/rerank": RERANK,
    "/v2/rerank": RERANK,
    "/rerank": RERANK,
    "/v1/score": SCORE,
    "/score": SCORE,
    "/pooling": POOLED,
    "/classify": POOLED,
    "/tokenize": TOKENIZE,
    "/detokenize": DETOKENIZE,
}
