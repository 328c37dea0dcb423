"""Compares our declarations with a CUDA toolkit's headers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from . import memory
from .machine import SHIM, Machine
from .results import Result, judged

PART = "headers"


def _folders() -> Iterator[Path]:
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if root := os.environ.get(variable):
            yield Path(root) / "include"
    if nvcc := memory.toolkit():
        yield nvcc.resolve().parents[1] / "include"
    yield from (Path("/usr/local/cuda/include"), Path("/usr/include"))


def check(machine: Machine) -> Iterator[Result]:
    folder = next((folder for folder in _folders() if (folder / "cuda.h").is_file()), None)
    if folder is None:
        figure = "there is no cuda.h: install a CUDA toolkit, or set CUDA_HOME"
        yield Result(part=PART, what="hami_cuda.h, hami_nvml.h", status="skipped", figure=figure)
        return
    ended = machine.run(["sh", SHIM / "tests" / "headers_agree.sh", folder])
    told = [line for line in ended.lines if "compared" in line] or [ended.errors.strip()[-300:]]
    yield judged(PART, str(folder), good=ended.status == 0, figure="; ".join(told))
