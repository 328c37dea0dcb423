"""The API-level suite, which the embedded API server passes, on the real one: it must not lie."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from .plane import ControlPlane

ROOT = Path(__file__).parents[2]


@pytest.fixture
def kubeconfig(binaries, tmp_path):
    """Of a control plane that only this suite has, with what its tests leave behind."""
    with ControlPlane(binaries, tmp_path, audit=False) as plane:
        yield plane.kubeconfig()


@pytest.mark.timeout(900)
def test_the_api_suite_holds_on_a_real_api_server(kubeconfig):
    command = [
        sys.executable,
        "-m",
        "pytest",
        "lab/tests/api",
        "--tb=short",
        "-p",
        "no:cacheprovider",
    ]
    # Its tests mostly wait for the server's controllers: more of them than there are cores.
    done = subprocess.run(
        [*command, "-n", "4", "-v", "--no-header", "-rs"],
        cwd=ROOT,
        env={
            **os.environ,
            "HAMI_TEST_KUBECONFIG": str(kubeconfig),
            "HAMI_TEST_KEEP_NAMESPACES": "1",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, "\n" + without_passes(done.stdout)
    assert re.search(r"\b\d+ passed", done.stdout), done.stdout


def without_passes(output: str) -> str:
    return "\n".join(line for line in output.splitlines() if " PASSED " not in line)
