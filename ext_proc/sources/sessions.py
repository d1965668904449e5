"""Who is asking again, and what their session remembers."""

import hashlib
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Literal, Protocol

from msgspec import Struct, structs

from ext_proc import config, names
from ext_proc.config import MIB
from policy.types import Binding

_ID = re.compile(r"[A-Za-z0-9._:~=+/-]{1,128}", re.ASCII)
"""What an id may look like to be used as it is: it travels on as a header."""


class Session(Struct, frozen=True):
    """*id* travels with the request; *key* is what a store knows it by, and says nothing about either."""

    id: str
    key: str
    found_by: Literal["header", "cookie", "user", "address", "made"]


class Sessions(Protocol):
    """What sessions remember. Both stores pass the same tests."""

    remote: bool
    """An answer takes time: up to the store's own budget, and never past the request's deadline."""

    async def binding(self, key: str) -> Binding | None:
        """What this session remembers; reading is using, so it renews its life. Raises SourceDown."""
        ...

    def bind(self, key: str, binding: Binding) -> None:
        """Remember, at once or soon; never makes the request wait and never raises."""
        ...

    async def close(self) -> None:
        """Give back connections."""
        ...


def identify(
    headers: Mapping[str, str], user: str | None, address: object | None, settings: config.Sessions, secret: bytes
) -> Session:
    """The session of a request: by header, cookie, `user` field, then (when allowed) client address; else a new one.

    An id that does not look like one is treated as absent. A user or an address is only ever sent on as a keyed
    hash. The key is keyed BLAKE2b (RFC 7693) over length-framed tenant, kind and id, so no two tenants and no two
    spellings meet.
    """
    tenant = headers.get(settings.tenant_header, "")
    header = headers.get(names.SESSION, "")
    if _ID.fullmatch(header):
        return Session(header, _keyed(secret, tenant, "id", header), "header")
    cookie = _cookie(headers.get("cookie", ""), settings.cookie)
    if cookie is not None:
        return Session(cookie, _keyed(secret, tenant, "id", cookie), "cookie")
    if user and settings.by_user:
        return _derived(secret, tenant, "user", user)
    if address is not None and settings.by_address:
        return _derived(secret, tenant, "address", str(address))
    made = secrets.token_hex(16)
    return Session(made, _keyed(secret, tenant, "id", made), "made")


def _derived(secret: bytes, tenant: str, kind: Literal["user", "address"], value: str) -> Session:
    """The id a client gets back leads to the same session as the user or address it was made from."""
    id_ = _keyed(secret, tenant, kind, value)[:32]
    return Session(id_, _keyed(secret, tenant, "id", id_), kind)


def _keyed(secret: bytes, *parts: str) -> str:
    framed = "".join([f"{len(part)}:{part}" for part in parts]).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(framed, key=secret[:64], digest_size=32).hexdigest()


def _cookie(header: str, name: str | None) -> str | None:
    """Taken apart by hand: http.cookies stops at the first cookie of somebody else's that it does not like."""
    if name is None:
        return None
    for pair in header.split(";"):
        key, _, value = pair.strip(" \t").partition("=")
        if key == name:
            value = value.strip('"')
            return value if _ID.fullmatch(value) else None
    return None


ENTRY_BYTES = 512
"""What one remembered session takes in a 64-bit Python, at most. A key is a hash and a binding's names are the fleet's
own, so nothing a client says makes an entry larger."""


class MemorySessions:
    """On one machine: the least recently used go first, unused ones after *ttl_s*, all after *max_age_s*."""

    remote = False

    def __init__(self, settings: config.Sessions, clock: Callable[[], float] = time.monotonic) -> None:
        self._ttl_s = settings.ttl_s
        self._max_age_s = settings.max_age_s
        self._most = settings.memory_mb * MIB // ENTRY_BYTES
        self._clock = clock
        self._bindings: OrderedDict[str, tuple[float, Binding]] = OrderedDict()

    async def binding(self, key: str) -> Binding | None:
        found = self._bindings.get(key)
        if found is None:
            return None
        last_used, binding = found
        now = self._clock()
        if now - last_used > self._ttl_s or (binding.began is not None and now - binding.began > self._max_age_s):
            del self._bindings[key]
            return None
        self._keep(key, binding, now)
        return binding

    def bind(self, key: str, binding: Binding) -> None:
        now = self._clock()
        self._keep(key, binding if binding.began is not None else structs.replace(binding, began=now), now)
        if len(self._bindings) > self._most:
            self._bindings.popitem(last=False)

    async def close(self) -> None:
        self._bindings.clear()

    def _keep(self, key: str, binding: Binding, now: float) -> None:
        self._bindings[key] = now, binding
        self._bindings.move_to_end(key)
