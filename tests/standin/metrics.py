"""What a stand-in shows at /metrics: a page read from a real vLLM, with its own figures in the places that matter."""

import re
from pathlib import Path

from tests.standin.engine import Engine

_PAGE = (Path(__file__).parent / "metrics.txt").read_text()
_LINE = re.compile(r"^(vllm:[a-z_0-9]+)(\{[^}]*\})? \S+$", re.M)


def page(engine: Engine, model: str) -> str:
    """vLLM's page for *engine* as it is now."""
    values = {
        "vllm:num_requests_running": engine.running,
        "vllm:num_requests_waiting": engine.waiting,
        "vllm:kv_cache_usage_perc": engine.kv_usage,
        "vllm:prefix_cache_queries_total": engine.queries,
        "vllm:prefix_cache_hits_total": engine.hits,
        "vllm:prompt_tokens_total": engine.prompts,
        "vllm:generation_tokens_total": engine.generated,
    }

    def own(line: re.Match[str]) -> str:
        if line[1] == "vllm:request_success_total":
            return f"{line[1]}{line[2]} {float(engine.finished if 'length' in line[2] else 0)}"
        return f"{line[1]}{line[2]} {float(values[line[1]])}" if line[1] in values else line[0]

    return _LINE.sub(own, _PAGE).replace('model_name="small"', f'model_name="{model}"')
