"""Fixtures of several tests of the node agent."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from .parts import Parts


@pytest.fixture
async def parts(tmp_path) -> AsyncIterator[Parts]:
    parts = Parts(tmp_path)
    yield parts
    parts.close()
