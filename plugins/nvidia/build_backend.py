"""hatchling, which asks for a C compiler where a wheel is made: only there is the library built.

An editable installation is a checkout, where ``make -C shim`` builds what its tests need.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hatchling.build import (
    build_editable,
    build_sdist,
    build_wheel,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
)
from hatchling.build import get_requires_for_build_wheel as _of_hatchling

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
]

COMPILER = "ziglang>=0.13"
"""zig's C compiler as a wheel: with headers and glibc's versions of symbols for every machine."""


def get_requires_for_build_wheel(config_settings: Mapping[str, Any] | None = None) -> list[str]:
    return [*_of_hatchling(dict(config_settings or {})), COMPILER]
