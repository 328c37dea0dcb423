"""``hooks.def``, read by other means than the library's."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .builds import SHIM

_LINE = re.compile(r"^HAMI_(HOOK|CALL|NVML_HOOK|NVML_CALL)\(([^)]*)\)", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """One exported spelling; ``since`` is the CUDA version from which it is the ABI of ``base``."""

    name: str
    base: str
    since: int
    per_thread: bool
    kind: str


def _lines(macro: str) -> list[list[str]]:
    text = (SHIM / "lib" / "hooks.def").read_text()
    return [
        [argument.strip() for argument in found[2].split(",")]
        for found in _LINE.finditer(text)
        if found[1] == macro
    ]


HOOKS = [
    Hook(name=name, base=base, since=int(since), per_thread=stream == "1", kind=kind)
    for name, base, since, stream, kind in _lines("HOOK")
]
CALLS = [name for (name,) in _lines("CALL")]
NVML_HOOKS = [name for (name,) in _lines("NVML_HOOK")]
NVML_CALLS = [name for (name,) in _lines("NVML_CALL")]
BASES = sorted({hook.base for hook in HOOKS})


def spelling(base: str, version: int, *, per_thread: bool) -> Hook | None:
    """The function that a complete driver returns to a program that asks for ``base``."""
    if base == "cuGraphInstantiate" and version >= 12000:
        base = "cuGraphInstantiateWithFlags"
    known = [hook for hook in HOOKS if hook.base == base and hook.since <= version]
    # cuLaunchKernel and others had a plain ABI for years before CUDA 7.0 had per-thread streams.
    wanted = [hook for hook in known if hook.per_thread == per_thread]
    plain = [hook for hook in known if not hook.per_thread]
    return max(wanted or plain, key=lambda hook: hook.since, default=None)
