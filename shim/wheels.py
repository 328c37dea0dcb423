"""Makes the wheels of hami-nvidia and hami-simgpu: hatchling, and C compiled for each machine.

``build_backend.py`` of both projects takes everything from here. Their ``pyproject.toml`` names the
package and which ``parts`` are compiled into it.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from hatchling.build import get_requires_for_build_wheel as _of_hatchling
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SHIM = Path(__file__).parent

COMPILER = "ziglang>=0.13"
"""zig's C compiler as a wheel: with headers and glibc's versions of symbols for every machine."""

GLIBC = "2.17"
"""The oldest one that tenants' images have: CentOS 7's."""

MACHINES = ("x86_64", "aarch64")

_WARNINGS = ("-Wall", "-Wextra", "-Werror", "-Wconversion", "-Wshadow")
_FLAGS = ("-std=c11", "-D_GNU_SOURCE", "-O2", "-fPIC", "-fvisibility=hidden", *_WARNINGS)
_SHARED = ("-shared", "-Wl,-z,defs", "-Wl,-z,now", "-Wl,-z,relro", "-Wl,-Bsymbolic")
_SYSTEM = ("-pthread", "-ldl", "-lm")

Sources = Sequence[Path]
Part = tuple[str, Sources, Sequence[str]]
"""A file's name, what it is compiled from, and the flags of it alone."""


def get_requires_for_build_wheel(config_settings: Mapping[str, Any] | None = None) -> list[str]:
    """The compiler too: only where a wheel is made is anything compiled.

    An editable installation is a checkout, where ``make -C shim`` builds what its tests need.
    """
    return [*_of_hatchling(dict(config_settings or {})), COMPILER]


def _library(*flags: str) -> Part:
    sources = [*SHIM.glob("lib/**/*.c"), *SHIM.glob("lib/**/*.S")]
    return "libvgpu.so", sources, (*_SHARED, *flags)


def enforcing() -> Iterator[Part]:
    """The library that goes to nodes."""
    yield _library()


def simulated() -> Iterator[Part]:
    """The simulated GPUs, and the library for programs outside containers.

    Such a program says itself where its slice is: nothing is mounted for it at ``/run/hami``.
    """
    yield _library("-DHAMI_TEST")
    client = SHIM / "simgpu/client.c"
    cuda = [*SHIM.glob("simgpu/cuda_*.c"), *SHIM.glob("lib/code/unpack_*.c")]
    for name, sources in (
        ("libcuda.so.1", [client, SHIM / "simgpu/queue.c", *cuda]),
        ("libnvidia-ml.so.1", [client, *SHIM.glob("simgpu/nvml_*.c")]),
    ):
        yield name, sources, (*_SHARED, f"-Wl,-soname,{name}")
    yield "simgpud", list(SHIM.glob("simgpu/daemon/*.c")), ()


PARTS: Mapping[str, Callable[[], Iterator[Part]]] = MappingProxyType(
    {"enforcing": enforcing, "simulated": simulated}
)


class Libraries(BuildHookInterface):  # type: ignore[type-arg]
    """Puts the project's ``parts`` into a wheel, as ``<package>/lib/<machine>/<name>``."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel" or version == "editable":
            return
        self._made = tempfile.TemporaryDirectory(prefix="hami-wheel-")
        for machine in MACHINES:
            for name, sources, flags in PARTS[self.config["parts"]]():
                made = Path(self._made.name) / machine / name
                made.parent.mkdir(exist_ok=True)
                _compile(machine, sorted(sources), made, flags)
                place = f"{self.config['package']}/lib/{machine}/{name}"
                build_data["force_include"][str(made)] = place

    def finalize(
        self,
        version: str,  # noqa: ARG002 -- hatchling's signature
        build_data: dict[str, Any],  # noqa: ARG002
        artifact_path: str,  # noqa: ARG002
    ) -> None:
        made = getattr(self, "_made", None)
        if made is not None:
            made.cleanup()


def _compile(machine: str, sources: Sources, output: Path, flags: Sequence[str]) -> None:
    includes = [f"-I{SHIM / folder}" for folder in ("include", "lib", "simgpu")]
    command = [sys.executable, "-m", "ziglang", "cc", f"--target={machine}-linux-gnu.{GLIBC}", "-s"]
    command += [*_FLAGS, *flags, *includes, *map(str, sources), "-o", str(output), *_SYSTEM]
    done = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603 -- our own
    if done.returncode != 0:
        raise RuntimeError(f"{output.name} for {machine} cannot be compiled:\n{done.stderr}")
