"""NVIDIA on a real kubelet and containerd, with GPUs that NVML only simulates."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from .processes import until
from .real_node import a_job, a_running_pod, an_app
from .simulated import simulated_gpus

pytestmark = pytest.mark.timeout(300)  # kubelet tries again every 10 to 15 s

REGISTER = "hami.io/node-nvidia-register"
LIBRARY = Path("/lib/x86_64-linux-gnu/libm.so.6")
"""Any shared library: the containers' programs are static and load none."""


@pytest.fixture
def gpus(node, tmp_path):
    """The ids of two GPUs that an agent serves; containers get ``/dev/nvidia<n>`` for each."""
    if not LIBRARY.exists():
        pytest.skip(f"needs {LIBRARY}, in place of the library that enforces limits")
    with simulated_gpus("a100-40gx2", node.name, tmp_path) as section:
        node.agent(
            "nvidia",
            devices=section,
            library=LIBRARY,
            hook_path=node.worker.home / "hook",
        )
        published = json.loads(node.object()["metadata"]["annotations"][REGISTER])
        ids = [gpu["id"] for gpu in published]
        (node.worker.cdi / "nvidia.json").write_text(json.dumps(spec_of(ids)))
        yield ids


def spec_of(ids):
    """As nvidia-ctk would write it, with another device for want of a GPU."""
    devices = [
        {
            "name": id,
            "containerEdits": {
                "deviceNodes": [{"path": f"/dev/nvidia{n}", "hostPath": "/dev/zero"}]
            },
        }
        for n, id in enumerate(ids)
    ]
    driver = {"env": ["DRIVER=stand-in"]}
    return {"cdiVersion": "0.6.0", "kind": "nvidia.com/gpu", "devices": devices, "containerEdits": driver}  # fmt: skip


def devices_in(container):
    folder = Path(f"/proc/{container.pid}/root/dev")
    return sorted(p.name for p in folder.glob("nvidia*") if stat.S_ISCHR(p.stat().st_mode))


def test_pods_share_gpus_and_see_no_other(node, gpus):
    node.cluster.add_pods(
        a_running_pod("a", gpu=1, mem=3000, cores=20),
        a_running_pod("b", gpu=1, mem=5000, cores=30),
        a_running_pod("both", gpu=2, mem=7000),
        a_running_pod("none"),
    )
    pods = {pod["metadata"]["name"]: pod for pod in node.starts("a", "b", "both", "none")}
    assert node.agrees("nvidia") == 3
    for name, wanted in {"a": 1, "b": 1, "both": 2, "none": 0}.items():
        container = node.container(name, "main")
        granted = [g for g in gpus if g in str(pods[name]["metadata"].get("annotations"))]
        assert len(granted) == wanted
        assert devices_in(container) == [f"nvidia{gpus.index(id)}" for id in granted]
        assert container.env.get("DRIVER") == ("stand-in" if wanted else None)


def test_the_preloaded_library_is_in_every_container_with_a_gpu(node, gpus):
    node.cluster.add_pod(a_running_pod("p", gpu=1, mem=3000, cores=20))
    node.starts("p")
    container = node.container("p", "main")
    preloaded = container.read("/etc/ld.so.preload").decode().split()
    assert [container.read(path) == LIBRARY.read_bytes() for path in preloaded] == [True]
    assert container.env["CUDA_DEVICE_MEMORY_LIMIT_0"] == "3000m"
    assert container.env["CUDA_DEVICE_SM_LIMIT"] == "20"
    # Whoever asks the older runtime hook for GPUs gets none beside these.
    assert container.env["NVIDIA_VISIBLE_DEVICES"] == "void"


def test_init_containers_and_sidecars(node, gpus):
    inits = [
        a_job("before", gpu=1, mem=1000),
        an_app("side", policy="Always", gpu=1, mem=2000),
    ]
    node.cluster.add_pod(a_running_pod("p", inits=inits, containers=[an_app(gpu=2, mem=3000)]))
    node.starts("p")
    assert node.agrees("nvidia") == 2


def test_two_vendors_serve_one_container(node, gpus):
    node.agent(devices={"devices": "mockx2"})
    until(
        "both say how pods are identified",
        lambda: (
            set(node.object()["metadata"]["annotations"]["hami.io/node-identity"].split(","))
            == {"NVIDIA=kubelet", "MOCK=kubelet"}
        ),
    )
    both = an_app("both", gpu=1, mem=3000, mock=1, mockmem=1000)
    node.cluster.add_pod(a_running_pod("p", containers=[both, an_app("gpu", gpu=1, mem=2000)]))
    node.starts("p")
    assert node.agrees("nvidia") == 2
    assert node.agrees("mock") == 1
    until(
        "the phase is success",
        lambda: node.cluster.pod("p")["metadata"]["annotations"]["hami.io/bind-phase"] == "success",
    )
    node.remove("p")
    node.gone("p")
    for vendor in ("nvidia", "mock"):
        left = until(
            f"nothing of {vendor} is left",
            lambda vendor=vendor: not node.left(vendor)["directories"],
        )
        assert left
