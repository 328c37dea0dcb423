"""Objects in an SQLite file, so that a server can be stopped and go on where it was.

Every change is written as it happens and survives the process, not the machine: there is no fsync.
Watches do not go on: a version from before the start is answered with 410, and clients list again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import msgspec

from hami.domain.errors import ConfigError
from hami_lab.api.objects.storage import Item, Record, item_of

Storage = tuple[str, str]

_TABLE = """
CREATE TABLE IF NOT EXISTS objects (
  resource_group TEXT, plural TEXT, namespace TEXT, name TEXT, raw BLOB,
  PRIMARY KEY (resource_group, plural, namespace, name)
) WITHOUT ROWID
"""
_VERSION = "CREATE TABLE IF NOT EXISTS version (latest INTEGER)"


class ObjectFile:
    """The file of one server; :class:`ConfigError` where it is no such file or is in use."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._database = _opened(path)
        try:
            self._database.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute("PRAGMA synchronous = OFF")
            self._database.execute(_TABLE)
            self._database.execute(_VERSION)
        except sqlite3.Error as error:
            self._database.close()
            raise _unusable(path, error) from error

    def load(self) -> Iterator[tuple[Storage, Item]]:
        """Everything that was stored.

        Raises:
            ConfigError: the file is broken.
        """
        try:
            rows = self._database.execute("SELECT resource_group, plural, raw FROM objects")
            for group, plural, raw in rows:
                yield (group, plural), item_of((group, plural), msgspec.json.decode(raw))
        except (sqlite3.Error, msgspec.DecodeError, KeyError) as error:
            raise ConfigError(f"{self._path}: its objects cannot be read: {error}") from error

    def version(self) -> int:
        """The newest version that was given out; that of a deletion is no object's."""
        found = self._database.execute("SELECT MAX(latest) FROM version").fetchone()
        return int(found[0] or 0)

    def write(self, storage: Storage, record: Record) -> None:
        """Keep one change."""
        item = record.item
        if record.type == "DELETED":
            self._database.execute(
                "DELETE FROM objects "
                "WHERE (resource_group, plural, namespace, name) = (?, ?, ?, ?)",
                (*storage, *item.key),
            )
        else:
            self._database.execute(
                "INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?, ?)",
                (*storage, *item.key, item.raw),
            )
        self._database.execute(
            "INSERT OR REPLACE INTO version (rowid, latest) VALUES (1, ?)", (item.version,)
        )

    def close(self) -> None:
        """Let go of the file."""
        self._database.close()


def _opened(path: Path) -> sqlite3.Connection:
    try:
        return sqlite3.connect(path, isolation_level=None, timeout=0)
    except sqlite3.Error as error:
        raise _unusable(path, error) from error


def _unusable(path: Path, error: sqlite3.Error) -> ConfigError:
    return ConfigError(
        f"{path}: cannot keep the cluster's objects here: {error}; name another file, or end the "
        "program that uses it"
    )
