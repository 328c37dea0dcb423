"""Modules that stay until the process ends."""

from __future__ import annotations

import gc
import importlib
import os
import sys
from types import ModuleType


def imported_for_good(name: str) -> ModuleType:
    """The module; the collector looks neither for garbage while it is made nor at it afterwards."""
    gc.disable()
    try:
        return importlib.import_module(name)
    finally:
        gc.freeze()
        gc.enable()


def import_structlog_alone() -> None:
    """Without rich, which it loads for tracebacks: they would show tokens among local variables.

    It would cost every node's agent 4 MiB too. Whoever wants rich for itself gets it as usual.
    """
    if "rich" in sys.modules or "structlog" in sys.modules:
        return
    sys.modules["rich"] = None  # type: ignore[assignment]
    try:
        importlib.import_module("structlog")
    finally:
        del sys.modules["rich"]


def import_aiohttp_alone() -> None:
    """Without the system's certificates, of which it keeps a set for callers that name no others.

    Our calls to the API server name theirs. The set costs 2 MiB; without it such a caller would be
    refused, not let through.
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
