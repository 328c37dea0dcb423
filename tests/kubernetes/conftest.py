"""Fixtures on a real Kubernetes; everything that needs one skips unless ``--kubernetes`` names
the folder with its binaries, as ``make test-kubernetes`` does.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from .cluster import Cluster
from .plane import ControlPlane


def pytest_addoption(parser):
    parser.addoption(
        "--kubernetes",
        metavar="DIR",
        type=Path,
        help="run the tests on a real Kubernetes, from the binaries in DIR",
    )


@pytest.fixture(scope="session")
def control_plane(request, tmp_path_factory):
    """etcd, kube-apiserver and kube-controller-manager, once for all tests of this process."""
    folder = request.config.getoption("kubernetes", default=None)
    if folder is None:
        pytest.skip("needs a real Kubernetes: run make test-kubernetes")
    with ControlPlane(folder, tmp_path_factory.mktemp("kubernetes")) as plane:
        plane.allow_hami("kube-system")
        yield plane


@pytest.fixture
def cluster(control_plane, tmp_path):
    """A namespace of the test's own in a cluster without nodes, and no schedulers yet."""
    with Cluster(control_plane, tmp_path) as cluster:
        yield cluster
