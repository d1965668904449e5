"""Worlds shared by tests that only ask, and a fresh one for tests that break things."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

import pytest

from tests.e2e import world as worlds
from tests.e2e.world import MODES, World


class NewWorld(Protocol):
    """Makes a world that a test may break."""

    def __call__(self, mode: str = ..., **settings: Any) -> World: ...


@pytest.fixture(scope="session", params=MODES)
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One world a mode for all tests that leave it as it was."""
    folder = tmp_path_factory.mktemp(request.param)
    settings = {"sessions": {"cookie": worlds.COOKIE}}
    with worlds.world(folder, request.param, settings=settings, bend=worlds.by_pool) as made:
        yield made


@pytest.fixture
def world(shared: World) -> Iterator[World]:
    """The shared world; afterwards Envoy must have found nothing wrong with our answers."""
    yield shared
    shared.envoy.check()
    assert shared.service is not None
    assert shared.service.alive
    assert "Traceback" not in shared.service.said(100_000)


@pytest.fixture
def new_world(tmp_path: Path) -> Iterator[NewWorld]:
    """Worlds of one's own."""
    with ExitStack() as stack:

        def make(mode: str = "buffered", **settings: Any) -> World:
            made: AbstractContextManager[World] = worlds.world(tmp_path, mode, **settings)
            return stack.enter_context(made)

        yield make


@pytest.fixture
def marker() -> str:
    """A request id to find a request by, wherever it went."""
    return uuid4().hex
