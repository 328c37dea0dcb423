"""Fixtures that several folders use: plugins as if they were installed."""

from __future__ import annotations

from collections.abc import Callable
from importlib import metadata
from typing import Any

import pytest

from .installed import Distribution, Point

Install = Callable[..., None]


@pytest.fixture
def install(monkeypatch) -> Install:
    """``install(acme=plugin)`` registers plugins, each as distribution ``hami-<name>``."""

    def install(*points: Point, **plugins: Any) -> None:
        named = [
            Point(name, found, Distribution(f"hami-{name}")) for name, found in plugins.items()
        ]
        registered, real = [*points, *named], metadata.entry_points

        def entry_points(*, group: str) -> list[Point]:
            return registered if group == "hami.plugins" else real(group=group)

        monkeypatch.setattr(metadata, "entry_points", entry_points)

    return install
