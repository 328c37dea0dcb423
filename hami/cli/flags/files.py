"""Files that a person names on the command line."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hami.domain.errors import ConfigError
from hami.simulate.documents import read_documents

STDIN = Path("-")


def file_name(path: Path) -> str:
    """The file's name for messages."""
    return "<stdin>" if path == STDIN else str(path)


def check_one_stdin(paths: Iterable[Path | None]) -> None:
    """Refuse to read standard input twice.

    Raises:
        ConfigError: two of the paths are ``-``.
    """
    if list(paths).count(STDIN) > 1:
        raise ConfigError("- is there twice, and standard input can be read once; leave one out")


def read_text(path: Path) -> str:
    """The text of the whole file; ``-`` is standard input.

    Raises:
        ConfigError: it cannot be opened, or is not UTF-8.
    """
    try:
        return _read(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{file_name(path)}: byte {error.start} is not UTF-8; save the file as UTF-8"
        ) from error
    except (OSError, ValueError) as error:
        # ValueError: a path with a NUL byte in it.
        cause = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(f"{file_name(path)}: {cause}; name a readable file") from error


def _read(path: Path) -> bytes:
    if path != STDIN:
        return path.read_bytes()
    if sys.stdin is None:
        raise ConfigError("<stdin>: standard input is closed; name a readable file")
    return sys.stdin.buffer.read()


def read_device_config(path: Path) -> dict[str, Any]:
    """The device configuration: one YAML mapping of sections.

    Raises:
        ConfigError: the file cannot be read, or is no YAML mapping.
    """
    documents = read_documents(file_name(path), read_text(path))
    match [document.value for document in documents]:
        case []:
            return {}
        case [dict() as sections]:
            return sections
        case [_]:
            problem = "is no mapping; write sections such as nvidia:"
        case _:
            problem = f"holds {len(documents)} documents; write one"
    raise ConfigError(f"{file_name(path)}: the device configuration {problem}")
