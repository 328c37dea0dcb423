"""``make gpu-check``: see ``--help``. Needs no root and no container."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

from . import addresses, conformance, launches, memory, pytorch, share, toolkit
from .machine import LIBRARY, SHIM, Broken, Machine, simulated_card
from .results import Result, failed, show, table

DOCUMENTS = SHIM.parent / "docs" / "benchmarks"
MIB = 1 << 20
MOST_LIMIT = 8 << 30

Part = Callable[[], Iterator[Result]]


def _parts(machine: Machine, options: argparse.Namespace) -> Mapping[str, Part]:
    whole, context = memory.card(machine)
    limit = min(whole // 4, MOST_LIMIT) // MIB * MIB
    quick = options.quick
    timing = share.Timing(warm_up=0.5, window=1) if quick else share.Timing(warm_up=5, window=10)
    kernels = (2_000,) if quick else (100, 2_000, 20_000)
    caps = (
        ((50,), (30, 70)) if quick else ((10,), (30,), (50,), (90,), (50, 50), (30, 70), (10, 90))
    )
    rounds, batches = (1, 20) if quick else (7, 500)
    return {
        "headers": lambda: toolkit.check(machine),
        "addresses": lambda: addresses.check(machine, whole),
        "conformance": lambda: conformance.check(machine, whole),
        "memory": lambda: memory.driver(machine, limit, context),
        "runtime": lambda: memory.runtime(machine, limit, context),
        "pytorch": lambda: pytorch.check(machine, limit, context, python=options.pytorch),
        "launches": lambda: launches.check(machine, limit, rounds=rounds, batches=batches),
        "share": lambda: share.check(machine, limit, timing=timing, kernels=kernels, caps=caps),
    }


NAMES = (
    "headers", "addresses", "conformance", "memory", "runtime", "pytorch", "launches", "share",
)  # fmt: skip


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make gpu-check", description=__doc__)
    parser.add_argument("--simulated", action="store_true", help="on a simulated card")
    parser.add_argument("--quick", action="store_true", help="short runs, which prove less")
    parser.add_argument("--write", action="store_true", help=f"a table into {DOCUMENTS.name}")
    parser.add_argument("--to", type=Path, default=DOCUMENTS, help="the folder of the table")
    parser.add_argument("--library", type=Path, default=LIBRARY, help="the one that is checked")
    parser.add_argument("--pytorch", default="", help="the Python that has PyTorch")
    parser.add_argument("--parts", nargs="+", choices=NAMES, default=NAMES, metavar="PART",
                        help=", ".join(NAMES))  # fmt: skip
    return parser.parse_args(arguments)


def _found(machine: Machine, options: argparse.Namespace) -> list[Result]:
    results: list[Result] = []
    parts = _parts(machine, options)
    for name in options.parts:
        try:
            for result in parts[name]():
                results.append(result)
                show(result)
        except (Broken, subprocess.TimeoutExpired) as error:
            results.append(
                Result(part=name, what="its program", status="failed", figure=str(error))
            )
            show(results[-1])
    return results


def _write(results: list[Result], machine: Machine, folder: Path) -> Path:
    date = datetime.now(UTC).date().isoformat()
    card = machine.facts["name"]
    words = "".join(sign if sign.isalnum() else " " for sign in card.lower()).split()
    file = folder / f"gpu-{'-'.join(words)}-{date}.md"
    folder.mkdir(parents=True, exist_ok=True)
    card += " (simulated)" if machine.simulated else ""
    file.write_text(table(results, card=card, driver=machine.facts["driver"], date=date))
    return file


def main(arguments: list[str]) -> int:
    options = _options(arguments)
    if not options.library.is_file():
        sys.stderr.write("gpu-check: skipped, make -C shim gpu-programs built no library\n")
        return 0
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gpu-check-")))
        simulated = None
        if options.simulated:
            simulated = stack.enter_context(simulated_card(folder / "card"))
        try:
            machine = Machine(folder, library=options.library, simulated=simulated)
        except Broken as error:
            sys.stderr.write(f"gpu-check: skipped, there is no NVIDIA GPU to check: {error}\n")
            return 0
        results = _found(machine, options)
        if options.write:
            sys.stdout.write(f"{_write(results, machine, options.to)}\n")
    return 1 if failed(results) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
