"""Structured logs on standard error: ours, and those of the libraries below us."""

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
    """``form`` is ``json``, one object a line, or ``console``. May be called again.

    Libraries log from warnings on, or from debug on where the level is ``debug``. Our own lines
    do not go through :mod:`logging`: a line for each filter would take a tenth of its time.
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
                # Not the pretty one that shows local variables, which may hold tokens.
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
    """The root logger's level is everybody's, and may change at any time."""
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
    """The least severity from now on: ``debug``, ``info``, ``warning`` or ``error``."""
    ours = logging.getLevelNamesMapping()[level.upper()]
    logging.getLogger().setLevel(ours)
    libraries = ours if ours == logging.DEBUG else max(ours, logging.WARNING)
    for name in _NOISY:
        logging.getLogger(name).setLevel(libraries)


class Secrets:
    """Leaves values whose key says that they are secret out of the log."""

    def __init__(self) -> None:
        self._harmless: set[str] = set()
        """Keys that were looked at before; the code names nearly all of them."""

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
