"""What can go wrong, by name, and how the client is told."""

import msgspec


class IsoglossError(Exception):
    """Anything we raise on purpose; its text is for the operator."""


class ConfigError(IsoglossError):
    """The configuration is wrong: the text names the field, the value and the way out."""


class SourceDown(IsoglossError):
    """A source (sessions, places, intents, loads) cannot answer now; it costs the request only its answer."""


_TYPES = {
    400: "BadRequestError",
    404: "NotFoundError",
    408: "RequestTimeoutError",
    409: "ConflictError",
    413: "PayloadTooLargeError",
    431: "BadRequestError",
    429: "RateLimitError",
    503: "ServiceUnavailableError",
}


def openai(status: int, message: str, param: str | None = None) -> bytes:
    """An error body in OpenAI's shape, as vLLM writes it."""
    error = {
        "message": message,
        "type": _TYPES.get(status, "InternalServerError"),
        "param": param,
        "code": status,
    }
    return msgspec.json.encode({"error": error})
