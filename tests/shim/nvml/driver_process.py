"""The NVIDIA plugin's NVML in a process of its own, which loads the simulated libnvidia-ml.so.1.

A process has one driver, which the loader finds by the environment, so each daemon needs another
process. The plugin's calls of NVML are forwarded; its own code runs here, in the test.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any, Self, TypeVar
from unittest.mock import patch

from hami_nvidia.nvml.driver import DriverNvml
from hami_nvidia.nvml.interface import Watch, XidEvent

from hami.domain.units import DeviceId

_T = TypeVar("_T")
_KEPT = ("PATH", "HOME", "TMPDIR", "VIRTUAL_ENV")


class _State:
    """State in the other process that its calls share."""

    nvml: DriverNvml | None = None
    watches: list[Watch] = []  # noqa: RUF012


def _asked(name: str, args: tuple[Any, ...], rest: Mapping[str, Any]) -> Any:
    _State.nvml = _State.nvml or DriverNvml()
    return getattr(_State.nvml, name)(*args, **rest)


def _watched(gpus: Sequence[str]) -> tuple[int, Mapping[DeviceId, str]]:
    watch = _asked("watch", (gpus,), {})
    _State.watches.append(watch)
    return len(_State.watches) - 1, watch.refused


def _of_watch(number: int, name: str, *args: Any) -> Any:
    return getattr(_State.watches[number], name)(*args)


class DriverProcess:
    """``with DriverProcess(gpus.env("a")) as process:`` starts it at the first request."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = {**{key: os.environ[key] for key in _KEPT if key in os.environ}, **env}
        self._pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()

    def run(self, function: Callable[..., _T], *args: Any, **rest: Any) -> _T:
        """Call a module's function in the other process."""
        with patch.dict(os.environ, self._env, clear=True):
            return self._pool.submit(function, *args, **rest).result()

    @property
    def nvml(self) -> Any:
        """The process as a ``hami_nvidia.nvml.interface.Nvml``."""
        return _Forwarded(self)


class _Forwarded:
    def __init__(self, process: DriverProcess) -> None:
        self._process = process

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **rest: self._process.run(_asked, name, args, rest)

    def watch(self, gpus: Sequence[str]) -> Watch:
        return _ForwardedWatch(self._process, *self._process.run(_watched, gpus))


class _ForwardedWatch:
    def __init__(
        self, process: DriverProcess, number: int, refused: Mapping[DeviceId, str]
    ) -> None:
        self._process, self._number, self.refused = process, number, refused

    def wait(self, seconds: float) -> XidEvent | None:
        found: XidEvent | None = self._process.run(_of_watch, self._number, "wait", seconds)
        return found

    def close(self) -> None:
        self._process.run(_of_watch, self._number, "close")
