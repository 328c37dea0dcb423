"""Fixtures of the service's tests."""

from __future__ import annotations

import pytest
import structlog
from structlog.testing import capture_logs


@pytest.fixture
def logged():
    """What was logged through structlog, as dictionaries."""
    structlog.reset_defaults()
    with capture_logs() as entries:
        yield entries
