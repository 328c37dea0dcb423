"""Structured logs on standard error: ours, and those of the libraries below us."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import MutableMapping
from typing import Any, TextIO

import structlog

_SECRET = re.compile(r"token|password|secret_value|authorization|private|pem$", re.IGNORECASE)
_NOISY = ("kubernetes", "asyncio", "aiohttp", "uvicorn.error", "uvicorn.access")


def configure_logs(level: str, form: str, stream: TextIO | None = None) -> None:
    """``form`` is ``json``, one object a line, or ``console``. May be called again.

    Libraries log from warnings on, or from debug on where the level is ``debug``.
    """
    renderer: Any = (
        structlog.processors.JSONRenderer()
        if form == "json"
        else structlog.dev.ConsoleRenderer(colors=(stream or sys.stderr).isatty())
    )
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        without_secrets,
    ]
    tracebacks: list[Any] = [structlog.processors.format_exc_info] if form == "json" else []
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.add_logger_name],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *tracebacks,
                renderer,
            ],
        )
    )
    root = logging.getLogger()
    for former in list(root.handlers):
        if isinstance(former.formatter, structlog.stdlib.ProcessorFormatter):
            root.removeHandler(former)
    root.addHandler(handler)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    set_level(level)


def set_level(level: str) -> None:
    """The least severity from now on: ``debug``, ``info``, ``warning`` or ``error``."""
    ours = logging.getLevelNamesMapping()[level.upper()]
    logging.getLogger().setLevel(ours)
    libraries = ours if ours == logging.DEBUG else max(ours, logging.WARNING)
    for name in _NOISY:
        logging.getLogger(name).setLevel(libraries)


def without_secrets(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Values whose key says that they are secret are left out of the log."""
    for key in event:
        if _SECRET.search(key):
            event[key] = "(not logged)"
    return event
