"""Plugins as if they were installed, and what the registry does with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from hami.domain.errors import PluginRejected
from hami.vendors.registry import load_vendors


@dataclass(frozen=True)
class Distribution:
    name: str
    version: str = "1.2.3"


@dataclass(frozen=True)
class Point:
    """An entry point as importlib.metadata shows it; loading gives the object or raises it."""

    name: str
    found: Any
    dist: Distribution | None
    value: str = "somewhere:plugin"

    def load(self) -> Any:
        if isinstance(self.found, BaseException):
            raise self.found
        return self.found


def rejection() -> str:
    with pytest.raises(PluginRejected) as caught:
        load_vendors()
    return str(caught.value)
