"""A PyTorch training step under the library, and PyTorch's own view of the limit."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from .machine import SHIM, Broken, Command, Machine
from .memory import CHUNK, MIB
from .results import Result, judged
from .slices import Slice

PART = "PyTorch"
SECONDS = 300.0


def interpreter(chosen: str) -> str | None:
    """A Python that has PyTorch with CUDA."""
    for python in dict.fromkeys((chosen, sys.executable, shutil.which("python3") or "")):
        if not python:
            continue
        try:
            tried = subprocess.run(
                [python, "-c", "import torch; assert torch.version.cuda"],
                check=False, capture_output=True, timeout=SECONDS,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired):
            continue
        if tried.returncode == 0:
            return python
    return None


def _trained(machine: Machine, python: str, slice_: Slice | None) -> dict[str, Any]:
    words = [str(CHUNK), str(slice_.memory)] if slice_ else [str(CHUNK)]
    command: Command = [python, SHIM / "gpu" / "training.py", *words]
    ended = machine.run(command, slice_, seconds=SECONDS)
    if ended.status != 0 or not ended.lines:
        raise Broken(f"training ended with {ended.status}: {ended.errors.strip()[-300:]}")
    found: dict[str, Any] = json.loads(ended.lines[-1])
    return found


def check(machine: Machine, limit: int, context: int, *, python: str) -> Iterator[Result]:
    chosen = None if machine.simulated else interpreter(python)
    if chosen is None:
        why = "no Python here has PyTorch with CUDA (PYTORCH=/path/to/python chooses one)"
        if machine.simulated:
            why = "simulated kernels compute nothing"
        yield Result(part=PART, what="training", status="skipped", figure=why)
        return
    plain = _trained(machine, chosen, None)
    for cores in (0, 50):
        found = _trained(machine, chosen, machine.slice(limit, cores=cores, reserve=context))
        kind = f"{limit // MIB} MiB" + (f", {cores} %" if cores else "")
        losses = [float(loss) for loss in found["losses"]]
        # One seed and one card: the same arithmetic, except for atomic additions in cuDNN.
        same = math.isclose(losses[0], float(plain["losses"][0]), rel_tol=1e-3)
        good = same and losses[1] < losses[0] and all(map(math.isfinite, found["after"]))
        figure = f"loss {losses[0]:.4f} to {losses[1]:.4f}, {found['step_ms']:.2f} ms a step"
        figure += f" (without the library {plain['step_ms']:.2f}), PyTorch {found['torch']}"
        yield judged(PART, f"training, {kind}", good=good, figure=figure)
        first, second = (int(filled) for filled in found["filled"])
        good = found["total"] == limit and 0 < first <= limit and second >= first - CHUNK * MIB
        figure = f"{first // MIB} MiB of {found['total'] // MIB} filled, then {second // MIB}"
        yield judged(PART, f"the limit, {kind}", good=good, figure=figure)
