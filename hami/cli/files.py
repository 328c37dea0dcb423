"""Files that a person names on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hami.domain.errors import ConfigError
from hami.sim.documents import read_documents


def read_text(path: Path) -> str:
    """The whole file.

    Raises:
        ConfigError: it cannot be opened, or is not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path}: byte {error.start} is not UTF-8; save the file as UTF-8"
        ) from error
    except (OSError, ValueError) as error:
        # ValueError: a path with a NUL byte in it.
        cause = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(f"{path}: {cause}; name a readable file") from error


def read_device_config(path: Path) -> dict[str, Any]:
    """The device configuration: one YAML mapping of sections.

    Raises:
        ConfigError: the file cannot be read, or is no such mapping.
    """
    documents = read_documents(str(path), read_text(path))
    match [document.value for document in documents]:
        case []:
            return {}
        case [dict() as sections]:
            return sections
        case [_]:
            problem = "is no mapping; write sections such as nvidia:"
        case _:
            problem = f"holds {len(documents)} documents; write one"
    raise ConfigError(f"{path}: the device configuration {problem}")
