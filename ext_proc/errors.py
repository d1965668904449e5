"""What can go wrong, by name."""


class IsoglossError(Exception):
    """Anything we raise on purpose; its text is for the operator."""


class ConfigError(IsoglossError):
    """The configuration is wrong: the text names the field, the value and the way out."""


class SourceDown(IsoglossError):
    """A source (sessions, places, intents, loads) cannot answer now. Never costs the request more than its budget."""
