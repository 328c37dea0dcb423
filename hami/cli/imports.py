"""Modules that stay until the process ends."""

from __future__ import annotations

import gc
import importlib
from types import ModuleType


def imported_for_good(name: str) -> ModuleType:
    """The module; the collector looks neither for garbage while it is made nor at it afterwards."""
    gc.disable()
    try:
        return importlib.import_module(name)
    finally:
        gc.freeze()
        gc.enable()
