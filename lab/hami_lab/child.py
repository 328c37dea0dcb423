"""Runs a command that ends when the process that started it does, however that ended.

``python -m hami_lab.child PARENT ARGUMENT...`` becomes ``python -m hami ARGUMENT...``.
A process that is killed cannot stop its children; Linux can (prctl(2), PR_SET_PDEATHSIG), and the
setting survives the exec.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    parent, *arguments = sys.argv[1:]
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM))
    if os.getppid() != int(parent):
        sys.exit("hami: the process that started this one is gone")
    os.execv(sys.executable, [sys.executable, "-m", "hami", *arguments])  # noqa: S606 -- no shell is wanted


if __name__ == "__main__":
    main()
