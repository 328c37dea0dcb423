"""Compiles libvgpu.so, and the simulated GPUs that show it at work, into the wheel."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

GLIBC = "2.17"
"""The oldest one that tenants' images have: CentOS 7's."""

MACHINES = ("x86_64", "aarch64")

_WARNINGS = ("-Wall", "-Wextra", "-Werror", "-Wconversion", "-Wshadow")
_FLAGS = ("-std=c11", "-D_GNU_SOURCE", "-O2", "-fPIC", "-fvisibility=hidden", *_WARNINGS)
_SHARED = ("-shared", "-Wl,-z,defs", "-Wl,-z,now", "-Wl,-z,relro", "-s")
_SYSTEM = ("-pthread", "-ldl", "-lm")


class Libraries(BuildHookInterface):  # type: ignore[type-arg]
    """Puts ``lib/<machine>/libvgpu.so`` and ``simulated/<machine>/...`` into ``hami_nvidia``."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel" or version == "editable":
            return
        sources = _sources(Path(self.root))
        self._made = tempfile.TemporaryDirectory(prefix="hami-nvidia-")
        for machine in MACHINES:
            for name, path in _build(sources, machine, Path(self._made.name) / machine).items():
                build_data["force_include"][str(path)] = f"hami_nvidia/{name}"

    def finalize(
        self,
        version: str,  # noqa: ARG002 -- hatchling's signature
        build_data: dict[str, Any],  # noqa: ARG002
        artifact_path: str,  # noqa: ARG002
    ) -> None:
        made = getattr(self, "_made", None)
        if made is not None:
            made.cleanup()


def _sources(root: Path) -> Path:
    """``shim`` of the source distribution, else of the repository."""
    for folder in (root / "shim", root.parents[1] / "shim"):
        if (folder / "include" / "hami_slice.h").is_file():
            return folder
    raise FileNotFoundError(
        f"{root / 'shim'}: the sources of libvgpu.so are not there; build hami-nvidia from its "
        f"source distribution or from a checkout of the whole repository"
    )


def _build(shim: Path, machine: str, into: Path) -> dict[str, Path]:
    """Files by their place in the package."""
    client = [shim / "simgpu" / "client.c"]
    simulated = f"simulated/{machine}"
    made = {}

    def compile_(name: str, sources: Sequence[Path], *flags: str) -> None:
        made[name] = into / name
        made[name].parent.mkdir(parents=True, exist_ok=True)
        _compile(shim, machine, sorted(sources), made[name], flags)

    library = [*shim.glob("lib/**/*.c"), *shim.glob("lib/**/*.S")]
    compile_(f"lib/{machine}/libvgpu.so", library, *_SHARED, "-Wl,-Bsymbolic")
    # The same for programs outside containers, which say themselves where their slice is.
    anywhere = (*_SHARED, "-Wl,-Bsymbolic", "-DHAMI_TEST")
    compile_(f"{simulated}/libvgpu.so", library, *anywhere)
    for name, parts in (
        (
            "libcuda.so.1",
            [
                *client,
                shim / "simgpu" / "queue.c",
                *shim.glob("simgpu/cuda_*.c"),
                *shim.glob("lib/code/unpack_*.c"),
            ],
        ),
        ("libnvidia-ml.so.1", [*client, *shim.glob("simgpu/nvml_*.c")]),
    ):
        soname = f"-Wl,-soname,{name}"
        compile_(f"{simulated}/{name}", parts, *_SHARED, "-Wl,-Bsymbolic", soname)
    compile_(f"{simulated}/simgpud", list(shim.glob("simgpu/daemon/*.c")), "-s")
    return made


def _compile(
    shim: Path, machine: str, sources: Sequence[Path], output: Path, flags: Sequence[str]
) -> None:
    includes = [f"-I{shim / folder}" for folder in ("include", "lib", "simgpu")]
    command = [sys.executable, "-m", "ziglang", "cc", f"--target={machine}-linux-gnu.{GLIBC}"]
    command += [*_FLAGS, *flags, *includes, *map(str, sources), "-o", str(output), *_SYSTEM]
    done = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603 -- our own
    if done.returncode != 0:
        raise RuntimeError(f"{output.name} for {machine} cannot be compiled:\n{done.stderr}")
