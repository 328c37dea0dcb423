"""The memory limit, through the driver's interface and through CUDA's runtime."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from .machine import SHIM, Broken, Command, Machine
from .results import Result, judged
from .slices import Slice

DRIVER, RUNTIME = "memory: driver", "memory: runtime"
MIB = 1 << 20
CHUNK = 32
"""MiB of each allocation."""
OUT_OF_MEMORY = "2"  # CUDA_ERROR_OUT_OF_MEMORY and cudaErrorMemoryAllocation
INTERNAL = 64 * MIB
"""Bytes that the driver may take for itself beyond the measured context."""


def _mib(count: int) -> str:
    return f"{count / MIB:.0f} MiB"


def card(machine: Machine) -> tuple[int, int]:
    """Bytes of the whole card and of a context on it, by NVML and without the library."""
    command: Command = [machine.program("memory"), str(CHUNK)]
    with machine.watched() as watch:
        before = int(watch.next()["used"])
        program = machine.start(command)
        try:
            lines = program.until("ready")
            context = int(watch.next()["used"]) - before
        finally:
            program.kill()
    total = int(lines[-1].split()[2])
    return total, max(0, context)


def _granted(part: str, line: str, slice_: Slice, spare: int) -> Iterator[Result]:
    """Check the granted bytes; ``spare`` may be missing from the limit."""
    name, granted, code, free, total = line.split()
    limit = slice_.memory
    figure = f"{_mib(int(granted))} of {_mib(limit)}, then {code}; free {_mib(int(free))}"
    within = limit - spare <= int(granted) <= limit
    good = within and code == OUT_OF_MEMORY and int(total) == limit
    yield judged(part, name, good=good, figure=figure)


def driver(machine: Machine, limit: int, context: int) -> Iterator[Result]:
    slice_ = machine.slice(limit, reserve=context)
    # The reserve, part of a last chunk, and the rounding of arrays and pools.
    spare = context + 3 * CHUNK * MIB
    with machine.watched() as watch:
        before = int(watch.next()["used"])
        program = machine.start([machine.program("memory"), str(CHUNK)], slice_)
        try:
            shown = program.until("ready")[-1].split()
            figure = f"{_mib(int(shown[2]))} in all, {_mib(int(shown[1]))} free"
            good = int(shown[2]) == limit and int(shown[1]) <= limit - context
            yield judged(DRIVER, "cuMemGetInfo", good=good, figure=figure)
            program.go()
            first = program.until("held")
            most = int(watch.next()["used"]) - before
            program.go()
        except Broken:
            program.kill()
            raise
        ended = program.end()
    good = first[-1] == f"small {OUT_OF_MEMORY}"
    yield from _granted(DRIVER, first[0], slice_, spare)
    figure = first[-1].removeprefix("small ") + f" ({OUT_OF_MEMORY}: out of memory)"
    yield judged(DRIVER, "one byte more than is free", good=good, figure=figure)
    for line in ended.lines:
        yield from _granted(DRIVER, line, slice_, spare)
    if ended.status != 0:
        figure = f"ended with {ended.status}: {ended.errors.strip()[-200:]}"
        yield Result(part=DRIVER, what="giving it back", status="failed", figure=figure)
    figure = f"{_mib(most)} in use by NVML, limit {_mib(limit)}, context {_mib(context)}"
    good = 0 < most <= limit + INTERNAL
    yield judged(DRIVER, "the card's own figure", good=good, figure=figure)


def toolkit() -> Path | None:
    """The toolkit's nvcc, if there is a toolkit."""
    for root in (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"):
        if root and (Path(root) / "bin" / "nvcc").is_file():
            return Path(root) / "bin" / "nvcc"
    found = shutil.which("nvcc")
    return Path(found) if found else None


def _runtime_lines(machine: Machine, slice_: Slice, kind: Sequence[str]) -> tuple[str, ...]:
    nvcc = toolkit()
    assert nvcc is not None
    program = machine.folder / f"runtime-{kind[-1]}"
    source = SHIM / "gpu" / "runtime.cu"
    made = subprocess.run(
        [str(nvcc), *kind, "-o", str(program), str(source)],
        check=False,
        capture_output=True,
        text=True,
    )
    if made.returncode != 0:
        raise Broken(f"nvcc: {made.stderr.strip()[-300:]}")
    return machine.says([program, str(CHUNK)], slice_)


def runtime(machine: Machine, limit: int, context: int) -> Iterator[Result]:
    """Check the runtime, linked statically as nvcc does it, and as a library."""
    reason = "" if toolkit() else "there is no nvcc"
    if machine.simulated:
        reason = "CUDA's runtime does not run on the simulated driver"
    if reason:
        yield Result(part=RUNTIME, what="memory", status="skipped", figure=reason)
        return
    for cudart in ("static", "shared"):
        slice_ = machine.slice(limit, reserve=context)
        try:
            context_line, *lines = _runtime_lines(machine, slice_, ("-cudart", cudart))
        except Broken as error:
            yield Result(part=RUNTIME, what=cudart, status="failed", figure=str(error))
            continue
        total = int(context_line.split()[2])
        what, figure = f"{cudart}: cudaMemGetInfo", f"{_mib(total)} in all"
        yield judged(RUNTIME, what, good=total == limit, figure=figure)
        for line in lines:
            for result in _granted(RUNTIME, line, slice_, context + 3 * CHUNK * MIB):
                yield replace(result, what=f"{cudart}: {result.what}")
