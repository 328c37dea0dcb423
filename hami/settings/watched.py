"""Files that may change while the process runs.

Compared by content and not by time: kubelet swaps a symbolic link above the mounted files
(pkg/volume/util/atomic_writer.go in Kubernetes), and a file that is written twice within one tick
of the clock keeps its time. The files are small.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


class WatchedFiles:
    """Remembers what it has read; a file that cannot be read counts as empty."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = tuple(paths)
        self._seen = self._read()

    def changed(self) -> bool:
        """Whether some content differs from the last call's. Blocks while it reads."""
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
