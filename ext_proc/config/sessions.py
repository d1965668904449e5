"""What is remembered of a conversation, and where."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from ext_proc.config.units import Milliseconds, Seconds


class Sessions(Struct, frozen=True, forbid_unknown_fields=True):
    """What is remembered of a conversation, and where."""

    store: Literal["memory", "redis"] = "memory"
    url: str = "redis://127.0.0.1:6379/0"
    """Redis store: one server, a Unix socket, a cluster or sentinels; `redis_url.FORMS` has the spellings."""
    ttl_s: Seconds = 1800.0
    """A session lives so long after its last use."""
    max_age_s: Annotated[float, Meta(gt=0.0, le=31_536_000.0)] = 86_400.0
    """And so long after its first, however much it is used."""
    memory_mb: Annotated[int, Meta(ge=1, le=65_536)] = 64
    """Memory store: mebibytes it may take, about 2,000 sessions each; the least recently used one goes first."""
    budget_ms: Milliseconds = 10.0
    """What one look-up may cost a request."""
    cookie: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,64}$")] | None = None
    by_user: bool = True
    by_address: bool = False
    """Off: behind NAT one address is many people."""
    tenant_header: Annotated[str, Meta(pattern=r"^[a-z0-9-]{1,64}$")] = "authorization"
    """Sessions of different values of this header never meet. Only its hash is kept."""
    secret: str = ""
    """Key of the session hashes; the same on every replica. Empty: made at start (memory store)."""

    def __post_init__(self) -> None:
        if self.max_age_s < self.ttl_s:
            raise ValueError(f"sessions.max_age_s ({self.max_age_s:g}) must not be under ttl_s ({self.ttl_s:g})")
        if self.store == "redis" and len(self.secret) < 16:
            raise ValueError("sessions.secret: the redis store needs at least 16 characters, the same on every replica")
