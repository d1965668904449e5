"""The bodies vLLM 0.32 sends, field for field, as dictionaries."""

import json
import time
from typing import Any
from uuid import uuid4

PRINT = "vllm-0.32.0-567d67a9"
Json = dict[str, Any]


def name(prefix: str) -> str:
    """An id as vLLM makes them."""
    return f"{prefix}-{uuid4().hex[:16]}"


def dumps(body: Any) -> bytes:
    """JSON without spaces, as vLLM writes it."""
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")


def event(body: Json, kind: str | None = None) -> bytes:
    """One server-sent event."""
    return (f"event: {kind}\n".encode() if kind else b"") + b"data: " + dumps(body) + b"\n\n"


def error(message: str, kind: str, param: str | None, code: int) -> Json:
    """vLLM's error, which is OpenAI's with a number as code."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def usage(prompt: int, answer: int) -> Json:
    """Tokens of a whole answer."""
    return {
        "prompt_tokens": prompt, "total_tokens": prompt + answer, "completion_tokens": answer,
        "prompt_tokens_details": None, "completion_tokens_details": None,
    }  # fmt: skip


def chat(model: str, text: str, prompt: int, answer: int) -> Json:
    """A whole /v1/chat/completions answer."""
    message = {
        "role": "assistant", "content": text, "refusal": None, "annotations": None, "audio": None,
        "function_call": None, "reasoning": None,
    }  # fmt: skip
    choice = {
        "index": 0, "message": message, "logprobs": None, "finish_reason": "length", "stop_reason": None,
        "token_ids": None, "routed_experts": None,
    }  # fmt: skip
    return {
        "id": name("chatcmpl"), "object": "chat.completion", "created": int(time.time()), "model": model,
        "choices": [choice], "service_tier": None, "system_fingerprint": PRINT, "usage": usage(prompt, answer),
        "prompt_logprobs": None, "prompt_token_ids": None, "prompt_text": None, "kv_transfer_params": None,
        "ec_transfer_params": None, "metrics": None,
    }  # fmt: skip


def completion(model: str, text: str, prompt: int, answer: int) -> Json:
    """A whole /v1/completions answer."""
    choice = {
        "index": 0, "text": text, "logprobs": None, "finish_reason": "length", "stop_reason": None,
        "token_ids": None, "prompt_logprobs": None, "prompt_token_ids": None, "routed_experts": None,
    }  # fmt: skip
    return {
        "id": name("cmpl"), "object": "text_completion", "created": int(time.time()), "model": model,
        "choices": [choice], "service_tier": None, "system_fingerprint": PRINT, "usage": usage(prompt, answer),
        "kv_transfer_params": None, "ec_transfer_params": None, "metrics": None,
    }  # fmt: skip


def message(model: str, text: str, prompt: int, answer: int) -> Json:
    """A whole /v1/messages answer."""
    return {
        "id": name("chatcmpl"), "type": "message", "role": "assistant",
        "content": [{"type": "text", "text": text}], "model": model, "stop_reason": "max_tokens",
        "stop_sequence": None, "usage": {"input_tokens": prompt, "output_tokens": answer},
    }  # fmt: skip


def output(text: str, item: str, status: str) -> Json:
    """The one item of a /v1/responses answer."""
    part = {"annotations": [], "text": text, "type": "output_text", "logprobs": None}
    return {
        "id": item, "content": [part], "role": "assistant", "status": status, "type": "message", "phase": None,
    }  # fmt: skip


def response(model: str, ident: str, outputs: list[Json], tokens: tuple[int, int] | None) -> Json:
    """A /v1/responses answer; without *tokens* it has only begun."""
    spent = tokens and {
        "input_tokens": tokens[0], "input_tokens_details": {"cached_tokens": 0}, "output_tokens": tokens[1],
        "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": sum(tokens),
    }  # fmt: skip
    return {
        "id": ident, "created_at": int(time.time()),
        "incomplete_details": {"reason": "max_output_tokens"} if tokens else None, "instructions": None,
        "metadata": None, "model": model, "object": "response", "output": outputs, "parallel_tool_calls": True,
        "temperature": 0.0, "tool_choice": "none", "tools": [], "top_p": 1.0, "background": False,
        "max_output_tokens": None, "previous_response_id": None, "prompt": None, "reasoning": None,
        "service_tier": "auto", "status": "incomplete" if tokens else "in_progress", "text": None,
        "truncation": "disabled", "usage": spent, "user": None,
    }  # fmt: skip


def pooled(path: str, model: str, given: Any, asked: Json, prompt: int) -> Json | None:
    """The answer of an API that says no words; None for the others."""
    count = len(given) if isinstance(given, list) and given and isinstance(given[0], str) else 1
    match path.rpartition("/")[2]:
        case "embeddings":
            one, prefix = {"object": "embedding", "embedding": [0.6, 0.8, 0.0, 0.0]}, "embd"
        case "pooling":
            one, prefix = {"object": "pooling", "data": [0.6, 0.8, 0.0, 0.0]}, "pool"
        case "classify":
            one, prefix = {"label": "LABEL_1", "probs": [0.4, 0.6], "num_classes": 2}, "classify"
        case "score":
            one, prefix = {"object": "score", "score": 0.5}, "score"
        case "rerank":
            return _reranked(model, asked["documents"], prompt)
        case "count_tokens":
            return {"input_tokens": prompt}
        case _:
            return None
    return {
        "id": name(prefix), "object": "list", "created": int(time.time()), "model": model,
        "data": [{"index": i, **one} for i in range(count)],
        "usage": {
            "prompt_tokens": prompt, "total_tokens": prompt, "completion_tokens": 0,
            "prompt_tokens_details": None,
        },
    }  # fmt: skip


def _reranked(model: str, documents: list[Any], prompt: int) -> Json:
    return {
        "id": name("rerank"), "model": model, "usage": {"prompt_tokens": prompt, "total_tokens": prompt},
        "results": [
            {"index": i, "document": {"text": document, "multi_modal": None}, "relevance_score": 1 / (i + 2)}
            for i, document in enumerate(documents)
        ],
    }  # fmt: skip


def transcription(text: str) -> Json:
    """A /v1/audio/transcriptions answer."""
    return {"text": text, "usage": {"type": "duration", "seconds": 1}}


def models(served: tuple[str, ...], length: int) -> Json:
    """GET /v1/models."""
    permission = {
        "id": name("modelperm"), "object": "model_permission", "created": int(time.time()),
        "allow_create_engine": False, "allow_sampling": True, "allow_logprobs": True,
        "allow_search_indices": False, "allow_view": True, "allow_fine_tuning": False, "organization": "*",
        "group": None, "is_blocking": False,
    }  # fmt: skip
    return {
        "object": "list",
        "data": [
            {
                "id": model, "object": "model", "created": int(time.time()), "owned_by": "vllm", "root": model,
                "parent": None, "max_model_len": length, "permission": [permission],
            }
            for model in served
        ],
    }  # fmt: skip
