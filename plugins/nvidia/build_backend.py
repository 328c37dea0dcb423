"""Makes the wheel as ``shim/wheels.py`` says, of a source distribution or of the repository."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "shim"), str(HERE.parents[1] / "shim")]

from hatchling.build import (  # noqa: E402
    build_editable,
    build_sdist,
    build_wheel,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
)
from wheels import Libraries, get_requires_for_build_wheel  # noqa: E402

__all__ = [
    "Libraries",
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
]
