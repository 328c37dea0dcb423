"""The pytest fixture ``hami_cluster``, in a test run of its own."""

from __future__ import annotations

import os
import subprocess
import sys

SUITE = """
import pytest

@pytest.fixture
def hami_cluster_settings():
    from hami_lab.cluster import ClusterSettings
    return ClusterSettings(flags=["--scheduler-name=of-this-suite"])


async def test_both(hami_cluster):
    await hami_cluster.add_node("n1", "t4x1")
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [
        {"name": "c", "image": "x", "resources": {"limits": {"nvidia.com/gpu": 1}}}]}}
    (made,) = await hami_cluster.apply(pod)
    assert made.spec["schedulerName"] == "of-this-suite"
    assert False, "to see what a failure shows"
"""


def test_a_suite_gets_a_cluster_and_a_failure_shows_the_services_log(tmp_path):
    (tmp_path / "test_suite.py").write_text(SUITE)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-o",
        "asyncio_mode=auto",
        "-p",
        "no:cacheprovider",
    ]
    result = subprocess.run(
        [*command, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
        cwd=tmp_path,
        env=os.environ | {"PYTEST_ADDOPTS": ""},
    )
    assert result.returncode == 1, result.stdout + result.stderr
    assert "to see what a failure shows" in result.stdout
    assert "- hami_cluster -" in result.stdout
    assert '"event":"listening"' in result.stdout
