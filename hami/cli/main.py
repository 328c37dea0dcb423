"""Where the process begins and ends: streams, Ctrl-C, and the last resort for a bug of ours.

This module imports little, so that whatever is slow or may fail runs under its guard.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from typing import Any

from hami.cli.imports import import_structlog_alone, imported_for_good
from hami.cli.terminal.interrupts import INTERRUPTED, ending_at_interrupt
from hami.cli.terminal.streams import replace_streams

INTERNAL, UNWRITABLE = 70, 74


def main() -> None:
    """Run the command and exit."""
    # Background jobs of scripts, and some CI runners' children, begin with SIGINT ignored. A SIGINT
    # that is sent to us is meant for us all the same.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    output = replace_streams()
    code = _run()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if output is not None:
        sys.stdout.flush()
        if output.problem is not None:
            _say(
                f"hami: error: cannot write the output: {output.problem.strerror}; write it "
                f"elsewhere"
            )
            code = UNWRITABLE
    sys.exit(code)


def _run() -> Any:
    try:
        with ending_at_interrupt():
            app = _imported().app
            app()
    except SystemExit as end:
        return end.code
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 -- the last resort: code 1 would mean "pending"
        return _internal_error(error)
    return 0


def _imported() -> Any:
    # We multiply no matrices, and OpenBLAS's threads spin while they wait for one.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # gRPC logs every connection that the other end closes to standard error.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    import_structlog_alone()
    return imported_for_good("hami.cli.app")


def _internal_error(error: Exception) -> int:
    if os.environ.get("HAMI_DEBUG") == "1":
        _say(traceback.format_exc().rstrip())
    what = " ".join(f"{type(error).__name__}: {error}".split())
    said = "".join(c if c.isprintable() else repr(c)[1:-1] for c in what)
    _say(f"hami: internal error: {said}; please report it, with what HAMI_DEBUG=1 prints")
    return INTERNAL


def _say(text: str) -> None:
    if sys.stderr is not None:
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
