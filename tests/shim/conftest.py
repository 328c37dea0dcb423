"""The library and the simulated GPUs, built once for all tests of this folder."""

from __future__ import annotations

import pytest

from .builds import Build, build


@pytest.fixture(scope="session")
def shim() -> Build:
    """The library as released, and with the switch that lets tests choose the slice's directory."""
    return build("")


@pytest.fixture(scope="session")
def shim_asan() -> Build:
    return build("asan")


@pytest.fixture(scope="session")
def shim_tsan() -> Build:
    return build("tsan")
