"""A session with the NVIDIA driver: load its library, initialise it, tell its errors apart.

The user asked for "pynvml". The module ``pynvml`` is maintained by NVIDIA in the distribution
``nvidia-ml-py``; the distribution ``pynvml`` is a deprecated shell around it.
"""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Any

from hami_nvidia.nvml.interface import GpuLost, InUse, NotSupported, NvmlAway, NvmlFailed

SONAME = "libnvidia-ml.so.1"

_BELOW_ROOT = (
    "usr/lib64",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "lib64",
    "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
)

_REMEDIES = (
    ("NVML_ERROR_UNINITIALIZED", "the session with the driver has ended; it is tried again"),
    (
        "NVML_ERROR_DRIVER_NOT_LOADED",
        "the driver is not loaded; load the kernel module nvidia, for example with nvidia-smi",
    ),
    (
        "NVML_ERROR_LIBRARY_NOT_FOUND",
        f"there is no {SONAME}; install the driver, or show it to us (--container-driver-root)",
    ),
    (
        "NVML_ERROR_LIB_RM_VERSION_MISMATCH",
        "the library is not the loaded driver's; restart this agent, or the node after an update",
    ),
)
"""NVML's errors that mean it cannot be used at all, with what they mean and who must act."""

_LOST = (
    ("NVML_ERROR_GPU_IS_LOST", "it fell off the bus; reboot the node"),
    ("NVML_ERROR_RESET_REQUIRED", "reset it with nvidia-smi --gpu-reset, or reboot the node"),
)
"""Errors of a GPU that cannot be used until somebody has acted."""


class Session:
    """NVML initialised once for everybody, and again after the driver went away.

    ``generation`` counts the sessions: what belongs to a former one (an event set) is void.
    A session is ended only while nobody is inside it, for NVML frees what a call may be using:
    until the last one has left a session without a driver, everybody else is told that it is away.
    """

    def __init__(self, driver_root: Path = Path("/"), api: Any = None) -> None:
        self.api = api if api is not None else importlib.import_module("pynvml")
        self._driver_root = driver_root
        self._preload = api is None
        self._lock = Lock()
        self._inside = 0
        self._initialised = False
        self._stale = False
        self._broken = ""
        self._away = {getattr(self.api, name): text for name, text in _REMEDIES}
        self._lost = {getattr(self.api, name): text for name, text in _LOST}
        self._unsupported = (
            self.api.NVML_ERROR_NOT_SUPPORTED,
            self.api.NVML_ERROR_FUNCTION_NOT_FOUND,
            self.api.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
        )
        self.generation = 0

    @contextmanager
    def asking(self, what: str) -> Iterator[Any]:
        """NVML's functions, initialised; their errors become ours, beginning with ``what``."""
        self._enter()
        try:
            yield self.api
        except self.api.NVMLError as error:
            raise self._failure(error, what) from error
        finally:
            self._leave()

    def end(self) -> None:
        """Let go of the driver as soon as nobody is inside; the next request starts anew."""
        with self._lock:
            self._stale = self._initialised
            if not self._inside:
                self._shut_down()

    def _leave(self) -> None:
        with self._lock:
            self._inside -= 1
            if self._stale and not self._inside:
                self._shut_down()

    def _enter(self) -> None:
        with self._lock:
            if self._broken:
                raise NvmlAway(self._broken)
            if not self._initialised:
                self._initialise()
            self._inside += 1

    def _initialise(self) -> None:
        if self._preload:
            preload_library(self._driver_root)
        try:
            self.api.nvmlInit()
        except self.api.NVMLError as error:
            raise NvmlAway(f"NVML cannot be initialised: {self._told(error)}") from error
        self._initialised = True
        self.generation += 1

    def _shut_down(self) -> None:
        """An error here says that there is nothing left to shut down."""
        if self._initialised:
            with suppress(self.api.NVMLError):
                self.api.nvmlShutdown()
        self._initialised = self._stale = False
        self._broken = ""

    def _failure(self, error: Any, what: str) -> NvmlFailed:
        text = f"NVML: {what}: {self._told(error)}"
        if error.value in self._away:
            with self._lock:
                self._stale, self._broken = True, text
            return NvmlAway(text)
        if error.value in self._lost:
            return GpuLost(f"{text}: {self._lost[error.value]}")
        if error.value == self.api.NVML_ERROR_IN_USE:
            # The module has no words for it.
            return InUse(f"NVML: {what}: In use by another client (NVML error {error.value})")
        return NotSupported(text) if error.value in self._unsupported else NvmlFailed(text)

    def _told(self, error: Any) -> str:
        return self._away.get(error.value) or f"{error} (NVML error {error.value})"


def text_of(value: str | bytes) -> str:
    """A name of NVML's: the module gives texts from functions and bytes from structures."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def preload_library(driver_root: Path) -> Path | None:
    """Load the library that lies below the driver's root, if one does; its path.

    ``pynvml`` asks the loader for the library's name alone. A library of that name that is
    already loaded is the answer, wherever it came from.

    Raises:
        NvmlAway: there is one, and it cannot be loaded.
    """
    path = library_path(driver_root)
    if path is None:
        return None
    try:
        ctypes.CDLL(str(path))
    except OSError as error:
        raise NvmlAway(
            f"NVML: {path} cannot be loaded: {error}; mount the driver of this node and of this "
            f"architecture at {driver_root}, or set --container-driver-root=/"
        ) from error
    return path


def library_path(driver_root: Path) -> Path | None:
    """Where the library lies below a root other than ``/``; None: nowhere, or ask the loader."""
    if driver_root == Path("/"):
        return None
    candidates = (driver_root / directory / SONAME for directory in _BELOW_ROOT)
    return next((found.resolve() for found in candidates if found.exists()), None)
