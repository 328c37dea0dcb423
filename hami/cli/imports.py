"""Imports of modules that stay until the process ends."""

from __future__ import annotations

import gc
import importlib
import os
import sys
from types import ModuleType


def imported_for_good(name: str) -> ModuleType:
    """Import a module; the garbage collector pauses meanwhile and later ignores its objects."""
    gc.disable()
    try:
        return importlib.import_module(name)
    finally:
        gc.freeze()
        gc.enable()


def import_structlog_alone() -> None:
    """Import structlog without rich, whose tracebacks would show tokens among local variables.

    rich would also cost every node's agent 4 MiB. Later imports of rich work as usual.
    """
    if "rich" in sys.modules or "structlog" in sys.modules:
        return
    sys.modules["rich"] = None  # type: ignore[assignment]
    try:
        importlib.import_module("structlog")
    finally:
        del sys.modules["rich"]


def import_aiohttp_alone() -> None:
    """Import aiohttp without the system's certificates, which it loads for its default context.

    Our calls to the API server name their own CA. The set costs 2 MiB. A caller that relied on it
    would be refused, and not let through.
    """
    former = os.environ.get("SSL_CERT_FILE")
    os.environ["SSL_CERT_FILE"] = os.devnull
    try:
        importlib.import_module("aiohttp")
    finally:
        if former is None:
            del os.environ["SSL_CERT_FILE"]
        else:
            os.environ["SSL_CERT_FILE"] = former
