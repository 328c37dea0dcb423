"""Runs ``hami`` repeatedly without paying for its imports each time.

``python forge.py`` imports what the scheduler service needs, and then forks a process for
every line on standard input: ``{"arguments": [...], "log": FILE, "exit": FILE}``. It answers with
the process's id, and writes the exit code to the file when that process ends (-9: SIGKILL). All
processes end with it.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

_PR_SET_PDEATHSIG = 1
_MODULES = (
    "hami.cli.app",
    "hami.cli.commands.scheduler",
    "hami.kube.identity.credentials",
    "hami.vendors.registry",
    "hami.scheduler.service",
    "hami.kube.identity.kubeconfig",
    "pydantic.v1",
    "uvicorn.protocols.http.httptools_impl",
)


def main() -> None:
    for name in _MODULES:
        importlib.import_module(name)
    from hami.vendors.registry import load_vendors

    load_vendors()
    # What is shared by all need not be walked through, and so copied, by each.
    gc.collect()
    gc.freeze()
    exits: dict[int, Path] = {}

    def reap(*_: object) -> None:
        while exits:
            try:
                process, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not process:
                return
            exits.pop(process).write_text(str(os.waitstatus_to_exitcode(status)))

    signal.signal(signal.SIGCHLD, reap)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in iter(sys.stdin.readline, ""):
        wanted = json.loads(line)
        # A child that ends at once must not be reaped before it is known.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        process = _forked(wanted)
        exits[process] = Path(wanted["exit"])
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        sys.stdout.write(f"{process}\n")
        sys.stdout.flush()


def _forked(wanted: Mapping[str, Any]) -> int:
    parent = os.getpid()
    process = os.fork()
    if process == 0:
        _become(parent, wanted["arguments"], wanted["log"])
    return process


def _become(parent: int, arguments: Sequence[str], log: str) -> NoReturn:
    """Become a process as if a shell had just started it."""
    code: Any = 70
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
        if os.getppid() != parent:
            os._exit(1)
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        nothing = os.open(os.devnull, os.O_RDONLY)
        said = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for there, here in ((nothing, 0), (said, 1), (said, 2)):
            os.dup2(there, here)
        sys.argv = ["hami", *arguments]
        from hami.cli.main import main as hami

        try:
            hami()
        except SystemExit as end:
            code = end.code
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 0 if code is None else 70)


if __name__ == "__main__":
    main()
