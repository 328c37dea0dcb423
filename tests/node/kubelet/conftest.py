"""A kubelet that the test plays, in a folder of its own."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest

from ..fake_kubelet import FakeKubelet


@pytest.fixture
def folder():
    """Short: a socket's path has 107 bytes."""
    path = Path(tempfile.mkdtemp(prefix="hami-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
async def kubelet(folder):
    fake = FakeKubelet(folder)
    yield fake
    await fake.die()
