"""Standard output and error whose writes never fail.

When the reader goes away (``| head``), libraries that print end the process with an exit code of
their own; a full disk ends in a traceback at exit. Here the first is ignored, and the second is
kept for the end of the process.
"""

from __future__ import annotations

import io
import sys
from typing import Any, TextIO


class Descriptor(io.FileIO):
    """A file descriptor that accepts every write; ``problem`` is the first failure that matters."""

    problem: OSError | None = None

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            pass
        except OSError as error:
            self.problem = self.problem or error
        return memoryview(data).nbytes


def replace_streams() -> Descriptor | None:
    """Put such streams into ``sys``; returns standard output's, or None where that is closed.

    Characters that the encoding lacks are escaped, in any locale.
    """
    if sys.stderr is not None:
        sys.stderr, _ = _replaced(sys.stderr)
    if sys.stdout is None:
        return None
    sys.stdout, output = _replaced(sys.stdout)
    return output


def _replaced(stream: TextIO) -> tuple[TextIO, Descriptor]:
    descriptor = Descriptor(stream.fileno(), "wb", closefd=False)
    text = io.TextIOWrapper(
        io.BufferedWriter(descriptor),
        encoding=stream.encoding,
        errors="backslashreplace",
        line_buffering=bool(stream.line_buffering),
    )
    return text, descriptor
