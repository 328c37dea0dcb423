"""Structured logs on standard error: ours, and those of the libraries that we use."""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Mapping, MutableMapping
from types import MappingProxyType
from typing import Any, TextIO

import msgspec
import structlog

_SECRET = re.compile(r"token|password|secret_value|authorization|private|pem$", re.IGNORECASE)
_KEYS = 1000
"""Keys of log lines that are known to be harmless, at most."""
_SEVERITY = MappingProxyType(
    {name.lower(): level for name, level in logging.getLevelNamesMapping().items()}
)
_NOISY = ("kubernetes", "asyncio", "aiohttp", "uvicorn.error", "uvicorn.access")


def configure_logs(level: str, form: str, stream: TextIO | None = None) -> None:
    """Set up logging; may be called again. ``form`` is ``json`` (one object a line) or ``console``.

    Libraries log warnings and worse, and everything where the level is ``debug``. Our own lines do
    not go through :mod:`logging`: a line for each filter would take a tenth of the filter's time.
    """
    stream = stream or sys.stderr
    shared: list[Any] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        Secrets(),
    ]
    renderers: list[Any] = (
        [
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(serializer=_json),
        ]
        if form == "json"
        else [
            structlog.dev.ConsoleRenderer(
                # Not the pretty tracebacks, which show local variables: those may hold tokens.
                colors=stream.isatty(),
                exception_formatter=structlog.dev.plain_traceback,
            )
        ]
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.add_logger_name],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *renderers,
            ],
        )
    )
    root = logging.getLogger()
    for former in list(root.handlers):
        if isinstance(former.formatter, structlog.stdlib.ProcessorFormatter):
            root.removeHandler(former)
    root.addHandler(handler)
    structlog.configure(
        processors=[_severe_enough, *shared, *renderers],
        wrapper_class=structlog.make_filtering_bound_logger(logging.NOTSET),
        logger_factory=structlog.WriteLoggerFactory(stream),
        cache_logger_on_first_use=False,
    )
    set_level(level)


def _severe_enough(
    _: Any, method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Drop the event if it is below the root logger's level, which may change at any time."""
    if _SEVERITY.get(method, logging.ERROR) < logging.root.level:
        raise structlog.DropEvent
    return event


def _json(event: Mapping[str, Any], **_: Any) -> str:
    try:
        return msgspec.json.encode(event, enc_hook=repr).decode()
    except (TypeError, ValueError):
        # A key that is no text, or half a surrogate pair in somebody's annotation.
        return json.dumps(event, default=repr, skipkeys=True)


def set_level(level: str) -> None:
    """Set the lowest severity that is logged: ``debug``, ``info``, ``warning`` or ``error``."""
    ours = logging.getLevelNamesMapping()[level.upper()]
    logging.getLogger().setLevel(ours)
    libraries = ours if ours == logging.DEBUG else max(ours, logging.WARNING)
    for name in _NOISY:
        logging.getLogger(name).setLevel(libraries)


class Secrets:
    """Replaces the values whose keys say that they are secret."""

    def __init__(self) -> None:
        self._harmless: set[str] = set()
        """Keys that were checked before; the code names nearly all of them."""

    def __call__(
        self, _: Any, __: str, event: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        if event.keys() <= self._harmless:
            return event
        for key in event:
            if _SECRET.search(key):
                event[key] = "(not logged)"
            elif len(self._harmless) < _KEYS:
                self._harmless.add(key)
        return event
