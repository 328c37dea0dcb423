"""A tenant that takes a lease on a file (fcntl(2)): other openers for writing wait for the tenant."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TENANT = """
import fcntl, os, signal, sys
page = os.open(sys.argv[1], os.O_RDONLY)

def take():
    try:
        fcntl.fcntl(page, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except OSError as error:
        return error.strerror
    return "leased"

def asked(*_):
    # Whoever opens it is let in, and the next one kept out again at once.
    fcntl.fcntl(page, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    take()

signal.signal(signal.SIGIO, asked)
print(take(), flush=True)
while True:
    signal.pause()
"""


@contextmanager
def a_tenant(path: Path) -> Iterator[str]:
    """``leased``, or why the kernel refused the lease."""
    command = [sys.executable, "-c", TENANT, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as tenant:
        try:
            assert tenant.stdout is not None
            yield tenant.stdout.readline().strip()
        finally:
            tenant.kill()
