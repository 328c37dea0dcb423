"""For every test of the repository."""

import os
import sys

import pytest
from hypothesis import settings

# Output that tests compare is the same whatever a shell or CI runner says of colours and widths.
_UNHEEDED = ("FORCE_COLOR", "NO_COLOR", "CLICOLOR_FORCE", "COLUMNS", "LINES", "TTY_COMPATIBLE")
for name in (*_UNHEEDED, "HAMI_DEBUG", "HAMI_SERVER"):
    os.environ.pop(name, None)
# Hundreds of processes are started, here and by tests, and import the same modules: each compiling
# them anew would take most of their time.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# Tests ask servers on this machine, with clients that would go through a proxy.
for name in ("no_proxy", "NO_PROXY"):
    os.environ[name] = ",".join(filter(None, [os.environ.get(name), "127.0.0.1", "localhost"]))

# A law is about values, not about how long a busy machine takes for an example.
settings.register_profile("hami", deadline=None)
settings.load_profile("hami")

FEWEST_WORKERS = 4
"""Half of their time tests wait: for a process, for a lease to end, for a time that must pass."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int | None:
    """``-n auto``: of one or two processors none is idle while a test waits."""
    processors = len(os.sched_getaffinity(0))
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ or processors >= FEWEST_WORKERS:
        return None
    return min(2 * processors, FEWEST_WORKERS)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What may take longest begins first: at the end it would keep all others waiting."""
    items.sort(key=_seconds_allowed, reverse=True)


def _seconds_allowed(item: pytest.Item) -> float:
    mark = item.get_closest_marker("timeout")
    return mark.args[0] if mark else 0.0
