"""Fixtures of the service's tests."""

from __future__ import annotations

import pytest
import structlog
from structlog.testing import capture_logs

from .world.process import Forge
from .world.world import a_world


@pytest.fixture
def logged():
    """The events that were logged through structlog, as dictionaries."""
    structlog.reset_defaults()
    with capture_logs() as entries:
        yield entries


@pytest.fixture(scope="session")
def forge():
    """Starts processes of the service without importing everything for each."""
    forge = Forge()
    yield forge
    forge.close()


@pytest.fixture
async def world(tmp_path, forge):
    """An API server without nodes; everything that a test starts in it ends with the test."""
    async with a_world(tmp_path, forge) as world:
        yield world
        assert world.books.violations == []
        assert world.complaints() == []
