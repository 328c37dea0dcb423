"""NVML without the library before it. Started as a process of its own, with the driver's paths.

``nvml.py card`` prints the first card as JSON; ``nvml.py watch`` twenty lines of JSON a second,
until its standard input ends: the memory in use, and how busy the card and each process were.
"""

from __future__ import annotations

import ctypes
import json
import select
import sys
import time
from typing import Any

PERIOD = 0.05


class Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_uint64), ("free", ctypes.c_uint64), ("used", ctypes.c_uint64))


class Utilisation(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class ProcessSample(ctypes.Structure):
    _fields_ = (
        ("pid", ctypes.c_uint),
        ("time", ctypes.c_uint64),
        ("sm", ctypes.c_uint),
        ("memory", ctypes.c_uint),
        ("encoder", ctypes.c_uint),
        ("decoder", ctypes.c_uint),
    )


class Unavailable(Exception):
    """NVML is missing, or there is no card; the message says which."""


class Card:
    """The card that is CUDA's device 0, found by UUID because NVML counts in another order."""

    def __init__(self, uuid: str = "") -> None:
        try:
            self._nvml: Any = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError as error:
            raise Unavailable(f"there is no NVIDIA driver: {error}") from None
        if self._nvml.nvmlInit_v2() != 0:
            raise Unavailable("NVML does not start")
        self._handle = ctypes.c_void_p()
        if uuid:
            code = self._nvml.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(self._handle))
        else:
            code = self._nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self._handle))
        if code != 0:
            raise Unavailable(f"NVML shows no GPU {uuid}: error {code}")
        self._seen = 0

    def _text(self, call: str, *first: object) -> str:
        text = ctypes.create_string_buffer(96)
        return text.value.decode() if getattr(self._nvml, call)(*first, text, 96) == 0 else ""

    def facts(self) -> dict[str, str]:
        return {
            "name": self._text("nvmlDeviceGetName", self._handle),
            "uuid": self._text("nvmlDeviceGetUUID", self._handle),
            "driver": self._text("nvmlSystemGetDriverVersion"),
        }

    def used(self) -> int:
        memory = Memory()
        if self._nvml.nvmlDeviceGetMemoryInfo(self._handle, ctypes.byref(memory)) != 0:
            return 0
        return int(memory.used)

    def busy(self) -> int:
        """Percent of NVML's last sample period in which any kernel ran; -1: not available.

        https://docs.nvidia.com/deploy/nvml-api/structnvmlUtilization__t.html
        """
        rates = Utilisation()
        if self._nvml.nvmlDeviceGetUtilizationRates(self._handle, ctypes.byref(rates)) != 0:
            return -1
        return int(rates.gpu)

    def processes(self) -> dict[int, int]:
        """Percent per pid, over the samples since the last call.

        https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
        """
        count = ctypes.c_uint(0)
        self._nvml.nvmlDeviceGetProcessUtilization(
            self._handle, None, ctypes.byref(count), ctypes.c_uint64(self._seen)
        )
        if count.value == 0:
            return {}
        samples = (ProcessSample * count.value)()
        code = self._nvml.nvmlDeviceGetProcessUtilization(
            self._handle, samples, ctypes.byref(count), ctypes.c_uint64(self._seen)
        )
        if code != 0:
            return {}
        valid = samples[: count.value]
        self._seen = max((sample.time for sample in valid), default=self._seen)
        return {sample.pid: sample.sm for sample in valid if sample.sm <= 100}


def main(arguments: list[str]) -> int:
    try:
        card = Card(arguments[1] if len(arguments) > 1 else "")
    except Unavailable as error:
        sys.stderr.write(f"{error}\n")
        return 2
    if arguments[0] == "card":
        sys.stdout.write(json.dumps(card.facts()) + "\n")
        return 0
    while not select.select([sys.stdin], [], [], PERIOD)[0]:
        line = {
            "time": time.monotonic(),
            "used": card.used(),
            "busy": card.busy(),
            "processes": card.processes(),
        }
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
