"""Checks that cuGetProcAddress answers with dlsym's addresses, and with the library's."""

from __future__ import annotations

from collections.abc import Iterator

from .machine import Machine
from .results import Result
from .slices import Slice

PART = "addresses"


def _spellings(machine: Machine, slice_: Slice | None) -> dict[str, list[str]]:
    """The functions' names by the outcome of their check."""
    found: dict[str, list[str]] = {}
    for line in machine.says([machine.program("addresses")], slice_):
        name, answer = line.split()
        found.setdefault(answer, []).append(name)
    return found


def check(machine: Machine, memory: int) -> Iterator[Result]:
    plain = _spellings(machine, None)
    counts = ", ".join(f"{len(plain.get(kind, []))} {kind}" for kind in ("same", "alone", "absent"))
    yield Result(
        part=PART, what="cuGetProcAddress and dlsym find the same address",
        status="differs" if plain.get("differs") else "ok",
        figure=f"{counts}; otherwise: {', '.join(plain.get('differs', [])) or 'none'}",
    )  # fmt: skip
    under = _spellings(machine, machine.slice(memory))
    bypassed = under.get("bypassed", [])
    yield Result(
        part=PART, what="under the library cuGetProcAddress answers with it",
        status="failed" if bypassed or not under.get("hooked") else "ok",
        figure=f"{len(under.get('hooked', []))} do; otherwise: {', '.join(bypassed) or 'none'}",
    )  # fmt: skip
