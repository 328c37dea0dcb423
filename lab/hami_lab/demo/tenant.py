"""A program in a container that takes device memory until it is refused, as often as it is told to.

It is run as a script, by Python alone, and knows nothing of hami: libcuda is all that it uses. Each
line on its standard input is answered by one of JSON: ``before`` and ``after`` are what
cuMemGetInfo says, as ``[free, total]`` in bytes, ``taken`` how many bytes it got in between, and
``refused`` the driver's name for why it got no more.
"""

from __future__ import annotations

import ctypes
import json
import sys

BLOCK = 2 << 20
"""Bytes that it asks for at a time."""


class Cuda:
    """The driver API, as far as it is used here; anything but success ends the program."""

    def __init__(self) -> None:
        self._driver = ctypes.CDLL("libcuda.so.1")
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self._done("cuInit", 0)
        self._done("cuDeviceGet", ctypes.byref(device), 0)
        self._done("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._done("cuCtxSetCurrent", context)

    def _done(self, function: str, *arguments: object) -> None:
        result = getattr(self._driver, function)(*arguments)
        if result != 0:
            sys.exit(f"{function}: {self._name(result)}")

    def _name(self, result: int) -> str:
        name = ctypes.c_char_p()
        self._driver.cuGetErrorName(result, ctypes.byref(name))
        return (name.value or b"").decode() or str(result)

    def memory(self) -> tuple[int, int]:
        """Free and total bytes, as the program sees them."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self._done("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def refused(self) -> str:
        """Take one more block; the error's name, or empty when the block was given."""
        block = ctypes.c_uint64()
        asked = ctypes.c_size_t(BLOCK)
        result = self._driver.cuMemAlloc_v2(ctypes.byref(block), asked)
        return self._name(result) if result else ""


def main() -> None:
    cuda = Cuda()
    for _ in sys.stdin:
        before = cuda.memory()
        taken, refused = 0, cuda.refused()
        while not refused:
            taken += BLOCK
            refused = cuda.refused()
        answer = {"before": before, "taken": taken, "refused": refused, "after": cuda.memory()}
        print(json.dumps(answer), flush=True)  # noqa: T201 -- whoever started it reads this


if __name__ == "__main__":
    main()
