"""Fixtures on a real Kubernetes. Tests that need one are skipped unless ``--kubernetes`` names the
folder with its binaries, as ``make test-kubernetes`` does.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from .binaries import not_in
from .cluster import Cluster
from .elastic import define, undefine
from .machine import lacking, on_a_real_node
from .plane import ControlPlane
from .real_node import RealNode, a_signing_service
from .release import Release
from .service import Service
from .worker import IMAGE, Worker, foreign_kubelet

MOST_PODS = "test_sixty_pods_at_once"


def pytest_addoption(parser):
    parser.addoption(
        "--kubernetes",
        metavar="DIR",
        type=Path,
        help="run the tests on a real Kubernetes, from the binaries in DIR",
    )


def pytest_collection_modifyitems(config, items):
    """Put the slowest tests first (see sharing.py), and among those the ones with the most pods."""
    if config.getoption("kubernetes", default=None):
        items.sort(
            key=lambda item: (not on_a_real_node(str(item.path)), item.name == MOST_PODS),
        )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Use our own distribution, whatever --dist says: no two processes may have a real node."""
    from .sharing import Sharing  # it needs xdist, which called this

    config.option.loadscopereorder = False  # keep the order of the tests
    return Sharing(config, log)


@pytest.fixture(scope="session")
def binaries(request):
    """The folder with a real Kubernetes."""
    folder = request.config.getoption("kubernetes", default=None)
    if folder is None:
        pytest.skip("needs a real Kubernetes: run make test-kubernetes")
    return folder


@pytest.fixture(scope="session")
def control_plane(binaries, tmp_path_factory):
    """etcd, kube-apiserver and kube-controller-manager, once for all tests of this process."""
    with ControlPlane(binaries, tmp_path_factory.mktemp("kubernetes")) as plane:
        plane.allow_hami("kube-system")
        yield plane


@pytest.fixture
def cluster(control_plane, tmp_path):
    """A namespace of the test's own in a cluster without nodes, and no schedulers yet."""
    with Cluster(control_plane, tmp_path) as cluster:
        yield cluster


@pytest.fixture
def undefined(cluster):
    """A cluster without definitions of elastic quotas before and after; other tests may leave some."""
    undefine(cluster)
    yield cluster
    undefine(cluster)


@pytest.fixture
def defined(undefined):
    """The chart's definitions of elastic quotas."""
    define(undefined)
    return undefined


@pytest.fixture
def node_binaries(control_plane, request):
    """The folder with kubelet and containerd, where this machine can be a node."""
    assert on_a_real_node(str(request.path)), "a file of another name may run beside another node"
    if missing := not_in(control_plane.bin, "node"):
        pytest.skip(f"needs {', '.join(missing)}: tests/kubernetes/build.sh DIR node makes them")
    if lack := lacking():
        pytest.skip(lack)
    if foreign_kubelet():
        pytest.skip("this machine is a node of another cluster")
    return control_plane.bin


@pytest.fixture
def signing(cluster, node_binaries) -> Service:
    """A scheduler that signs; it starts while the node does."""
    return a_signing_service(cluster)


@pytest.fixture
def worker(cluster, node_binaries):
    """The node ``real1``: kubelet and containerd, beside the control plane."""
    with Worker(cluster.plane, "real1", node_binaries) as worker:
        yield worker


@pytest.fixture
def node(cluster, signing, worker):
    """``real1`` with the chart's rights, a scheduler that signs, and agents when asked for."""
    with (
        Release(cluster, image=IMAGE) as release,
        RealNode(cluster, worker, release, signing) as node,
    ):
        yield node
