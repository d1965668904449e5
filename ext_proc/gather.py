"""Ask every source at once, each within its budget; what is not known in time is missing, not guessed."""

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Protocol, TypeVar

from ext_proc.errors import SourceDown
from ext_proc.parse import Parsed
from ext_proc.sources.intents import Intents
from ext_proc.sources.sessions import Session, Sessions
from policy.types import Binding, Features, Intent, Place

T = TypeVar("T")


class Places(Protocol):
    """Where a client is."""

    def place(self, headers: Mapping[str, str], attributes: Mapping[str, str]) -> Place | None: ...


class Gather:
    """The sources and their budgets."""

    def __init__(self, intents: Intents | None, places: Places, sessions: Sessions, *, session_s: float) -> None:
        """*session_s*: what one session look-up may cost, in seconds. *intents* None: nobody reads meaning."""
        self._intents = intents
        self._places = places
        self._sessions = sessions
        self._session_s = session_s

    async def features(
        self,
        parsed: Parsed,
        session: Session,
        headers: Mapping[str, str],
        attributes: Mapping[str, str],
        *,
        until: float,
    ) -> Features:
        """What is known by *until*, on the event loop's clock. Never raises for a source that is down."""
        missing: list[str] = []
        # The encoder is set going first and waited for last: it works in its threads while we ask the rest.
        intent, encoding = self._meaning(parsed, until, missing)
        place = self._places.place(headers, attributes)
        binding: Binding | None = None
        if session.found_by != "made":
            answer = self._sessions.binding(session.key)
            if self._sessions.remote:
                soon = min(until, asyncio.get_running_loop().time() + self._session_s)
                binding = await _known("sessions", answer, soon, missing)
            else:
                binding = await answer
        if encoding is not None:
            intent = await _known("intents", asyncio.shield(encoding), until, missing)
        return Features(intent=intent, place=place, binding=binding, missing=tuple(missing))

    def _meaning(
        self, parsed: Parsed, until: float, missing: list[str]
    ) -> "tuple[Intent | None, asyncio.Task[Intent | None] | None]":
        if self._intents is None or not parsed.text:
            return None, None
        if parsed.text in self._intents:
            return self._intents.known(parsed.text), None
        try:
            return None, self._intents.begin(parsed.text, until)
        except SourceDown:
            missing.append("intents")
            return None, None


async def _known(name: str, answer: Awaitable[T], until: float, missing: list[str]) -> T | None:
    try:
        async with asyncio.timeout_at(until):
            return await answer
    except (TimeoutError, SourceDown):
        missing.append(name)
        return None
