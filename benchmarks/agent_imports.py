"""The processor time of a process that imports what an agent needs, or the libraries among it.

``python -m benchmarks.agent_imports agent`` (or ``libraries``) prints seconds, from the process's
beginning to the last import.
"""

from __future__ import annotations

import importlib
import sys
import time

from hami.cli.imports import import_aiohttp_alone, import_structlog_alone, imported_for_good

LIBRARIES = (
    "asyncinotify",
    "cryptography.hazmat.primitives.serialization",
    "google.protobuf.internal.builder",
    "grpc.aio",
    "httptools",
    "msgspec",
    "pluggy",
    "pydantic.dataclasses",
    "pydantic.main",
    "typer",
    "yaml",
)


def import_libraries() -> None:
    import_structlog_alone()
    import_aiohttp_alone()
    for name in LIBRARIES:
        importlib.import_module(name)


def import_agent() -> None:
    """As ``hami device-plugin`` does it, plugins included."""
    import_structlog_alone()
    imported_for_good("hami.cli.app")
    imported_for_good("hami.cli.commands.device_plugin")
    importlib.import_module("hami.vendors.registry").load_vendors()
    import_aiohttp_alone()
    imported_for_good("hami.node.agent")


if __name__ == "__main__":
    {"agent": import_agent, "libraries": import_libraries}[sys.argv[1]]()
    sys.stdout.write(f"{time.process_time()}\n")
