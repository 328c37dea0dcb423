"""Files that may change while the process runs.

Compared by content, not by time: Kubernetes swaps a symbolic link above mounted files, and a
file that was written twice within one tick of the clock has the same time. They are small.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


class WatchedFiles:
    """Remembers what it has read; a file that cannot be read counts as one without content."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = tuple(paths)
        self._seen = self._read()

    def changed(self) -> bool:
        """Some content is not what it was at the last call. Blocks while it reads."""
        now = self._read()
        if now == self._seen:
            return False
        self._seen = now
        return True

    def _read(self) -> tuple[bytes | None, ...]:
        return tuple(_content(path) for path in self._paths)


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None
