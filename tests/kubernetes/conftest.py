"""Fixtures on a real Kubernetes; everything that needs one skips unless ``--kubernetes`` names
the folder with its binaries, as ``make test-kubernetes`` does.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from .binaries import not_in
from .cluster import Cluster
from .machine import lacking
from .plane import ControlPlane
from .real_node import RealNode
from .release import Release
from .worker import IMAGE, Worker, foreign_kubelet

KEYS_OF_MOCK = {
    "vendors": {
        "MOCK": {
            "node": ["hami.io/node-mock-register"],
            "pod": ["hami.io/mock-devices-to-allocate", "mock.hami.io/tags"],
            "allocation": ["hami.io/mock-devices-allocated"],
        }
    }
}


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


@pytest.fixture
def worker(cluster):
    """The node ``real1``: kubelet and containerd, beside the control plane."""
    if missing := not_in(cluster.plane.bin, "node"):
        pytest.skip(f"needs {', '.join(missing)}: tests/kubernetes/build.sh DIR node makes them")
    if lack := lacking():
        pytest.skip(lack)
    if foreign_kubelet():
        pytest.skip("this machine is a node of another cluster")
    with Worker(cluster.plane, "real1", cluster.plane.bin) as worker:
        yield worker


@pytest.fixture
def node(cluster, worker):
    """``real1`` with the chart's rights, a scheduler that signs, and agents when asked for."""
    with (
        Release(cluster, image=IMAGE, annotations=KEYS_OF_MOCK) as release,
        RealNode(cluster, worker, release) as node,
    ):
        yield node
