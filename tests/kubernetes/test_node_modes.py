"""On a real kubelet and containerd: HAMi's own protocol, and limits that change while it runs."""

from __future__ import annotations

import base64
import json
import os
import signal
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from hami.domain.kubernetes.objects import Pod
from hami.domain.units import MemoryMiB
from hami.policy.pods.accounting import account_of
from hami.signing import Signer
from hami.slices.limits_page import read_page
from hami.vendors.registry import load_vendors
from hami.wire import keys
from hami.wire.allocation import encode_allocation

from ..node.disk.leases import a_tenant
from .client import NAMESPACES, node_path, pods_path
from .processes import until
from .real_node import MIB, a_job, a_running_pod, an_app, grants_of
from .simulated import simulated_gpus

pytestmark = pytest.mark.timeout(300)  # kubelet tries again every 10 to 15 s

LIBRARY = Path("/lib/x86_64-linux-gnu/libm.so.6")
"""Any shared library: the containers' programs are static and load none."""


@pytest.fixture
def locked(node, tmp_path):
    """An NVIDIA agent that speaks HAMi's protocol; where it puts what containers mount."""
    if not LIBRARY.exists():
        pytest.skip(f"needs {LIBRARY}, in place of the library that enforces limits")
    with simulated_gpus("a100-40gx2", node.name, tmp_path) as section:
        hook = node.worker.home / "hook"
        node.agent(
            "nvidia",
            devices=section,
            library=LIBRARY,
            hook_path=hook,
            identity="lock",
            accept_unsigned="yes",  # as beside HAMi's scheduler, which signs nothing
        )
        yield hook


def test_the_node_lock_gives_each_container_its_own_grant(node, locked):
    assert node.object()["metadata"]["annotations"]["hami.io/node-identity"] == "NVIDIA=lock"
    two = [an_app("one", gpu=1, mem=2000), an_app("two", gpu=2, mem=4000, cores=10)]
    node.cluster.add_pods(
        a_running_pod("a", gpu=1, mem=3000, cores=20), a_running_pod("b", containers=two)
    )
    for pod in node.starts("a", "b", seconds=120):
        name = pod["metadata"]["name"]
        for container, grants in grants_of(pod, "nvidia").items():
            env = node.container(name, container).env
            assert env["NVIDIA_VISIBLE_DEVICES"] == ",".join(uuid for uuid, _, _ in grants)
            for n, (_, memory, _) in enumerate(grants):
                assert env[f"CUDA_DEVICE_MEMORY_LIMIT_{n}"] == f"{memory}m"
            assert env["CUDA_DEVICE_SM_LIMIT"] == str(grants[0][2])
            preload = node.container(name, container).read("/etc/ld.so.preload").decode()
            assert preload == f"{locked}/vgpu/libvgpu.so\n"
    until(
        "the lock is released and both say success",
        lambda: (
            keys.NODE_LOCK not in node.object()["metadata"]["annotations"]
            and all(
                node.cluster.pod(name)["metadata"]["annotations"][keys.BIND_PHASE] == "success"
                for name in ("a", "b")
            )
        ),
    )
    node.remove("a", "b")
    node.gone("a", "b")
    until("nothing is left", lambda: not node.left("nvidia")["directories"])


def test_a_pod_whose_list_has_no_slot_for_its_init_container_starts(node, locked):
    """As HAMi 2.10 writes it, for which a container that asks for no device has no slot."""
    gpus = json.loads(node.object()["metadata"]["annotations"]["hami.io/node-nvidia-register"])
    text = f"{gpus[1]['id']},NVIDIA,1500,0:;"
    lock = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ},{node.cluster.namespace},theirs"
    node.admin.merge(node_path(node.name), {"metadata": {"annotations": {keys.NODE_LOCK: lock}}})
    pod = a_running_pod(
        "theirs",
        inits=[a_job("plain")],
        gpu=1,
        mem=1500,
        annotations={
            keys.NODE: node.name,
            keys.BIND_PHASE: "allocating",
            keys.BIND_TIME: "1790000001",
            "hami.io/vgpu-devices-to-allocate": text,
            "hami.io/vgpu-devices-allocated": text,
        },
    )
    pod["spec"]["nodeName"] = node.name
    node.cluster.add_pod(pod)
    node.starts("theirs", seconds=120)
    env = node.container("theirs", "main").env
    assert (env["NVIDIA_VISIBLE_DEVICES"], env["CUDA_DEVICE_MEMORY_LIMIT_0"]) == (
        gpus[1]["id"],
        "1500m",
    )
    assert keys.NODE_LOCK not in node.object()["metadata"]["annotations"]


def test_an_agent_that_ends_takes_back_that_its_node_needs_no_lock(node):
    """Else HAMi's plugin, which may come next, would be sent pods without a lock."""

    def said() -> str:
        return str(node.object()["metadata"]["annotations"].get("hami.io/node-identity", ""))

    lease = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/hami-mock-{node.name}"
    agent = node.agent(devices={"devices": "mockx2"})
    until("it says kubelet", lambda: said() == "MOCK=kubelet")
    assert node.admin.get(lease)["spec"]["holderIdentity"] == node.name
    assert agent.stop() == 0
    assert said() == ""
    agent.start()
    until("it says kubelet again", lambda: said() == "MOCK=kubelet")
    agent.kill()
    assert said() == "MOCK=kubelet", "its Lease tells that it is gone"
    renewed = node.admin.get(lease)["spec"]["renewTime"]
    agent.start()
    until("it is heard again", lambda: node.admin.get(lease)["spec"]["renewTime"] != renewed)


def test_a_resize_reaches_a_container_that_runs(node):
    node.agent(devices={"devices": "mockx2"})
    node.cluster.add_pod(a_running_pod("p", mock=1, mockmem=3000, mockcores=20))
    node.starts("p")
    container = node.container("p", "main")
    resize(node, "p", memory=7000, generation=2)

    def limit():
        return read_page(container.read("/run/hami/mock/limits")).devices[0].memory_bytes // MIB

    until("the page says 7000", lambda: limit() == 7000)
    assert node.container("p", "main").pid == container.pid
    resize(node, "p", memory=9000, generation=1)
    until(
        "an old generation is refused",
        lambda: any("generation 1" in text for text in events(node, "SliceNotResized")),
    )
    assert limit() == 7000


def test_a_lease_on_the_page_keeps_no_resize_off(node):
    """A tenant who is root in its container takes one, while the agent runs and while it does not."""
    agent = node.agent(devices={"devices": "mockx1"})
    node.cluster.add_pod(a_running_pod("p", mock=1, mockmem=3000))
    node.starts("p")
    container = node.container("p", "main")
    page = Path(f"/proc/{container.pid}/root/run/hami/mock/limits")

    def limit():
        return read_page(page.read_bytes()).devices[0].memory_bytes // MIB

    with a_tenant(page) as answer:
        assert answer != "leased"
        resize(node, "p", memory=7000, generation=2)
        until("the page says 7000", lambda: limit() == 7000)
    agent.kill()
    with a_tenant(page) as answer:
        assert answer == "leased"
        agent.start()
        resize(node, "p", memory=5000, generation=3)
        until("the page says 5000", lambda: limit() == 5000)


def test_a_growth_that_was_refused_is_refused_to_the_next_start_too(node):
    """A container that is restarted must not get what its device does not have."""
    node.agent(devices={"devices": "mockx1"})
    node.cluster.add_pods(
        a_running_pod("p", mock=1, mockmem=3000), a_running_pod("q", mock=1, mockmem=9000)
    )
    node.starts("p", "q")
    resize(node, "p", memory=12000, generation=2)
    until("the resize is refused", lambda: events(node, "SliceNotResized"))
    os.kill(node.container("p", "main").pid, signal.SIGKILL)
    text = node.waits("p", "it is held by pod")
    assert f"{node.cluster.namespace}/q" in text
    assert node.containers("p") == []
    node.remove("q")
    node.starts("p")
    assert node.agrees() == 1


def resize(node, name: str, *, memory: int, generation: int) -> None:
    """As the scheduler would: the same devices, another size, signed with its own key."""
    namespace = node.cluster.namespace
    secret = node.admin.get(f"{NAMESPACES}/{namespace}/secrets/hami-signing-key")["data"][
        "signing-key.pem"
    ]
    vendors = load_vendors()
    pod = msgspec.convert(node.cluster.pod(name), Pod)
    account = account_of(pod, vendors)
    containers = tuple(
        replace(c, grants=tuple(replace(g, memory_mib=MemoryMiB(memory)) for g in c.grants))
        for c in account.allocation.containers
    )
    allocation = replace(account.allocation, containers=containers)
    signer = Signer.from_pem(base64.b64decode(secret))
    written = encode_allocation(allocation, vendors.profiles)
    written[keys.ALLOCATION_SIGNATURE] = signer.sign(pod.uid, allocation, generation)
    path = f"{pods_path(pod.namespace)}/{name}"
    node.admin.merge(path, {"metadata": {"annotations": written}})


def events(node, reason: str) -> list[str]:
    found = node.admin.get(f"{NAMESPACES}/{node.cluster.namespace}/events")["items"]
    return [json.dumps(event["message"]) for event in found if event["reason"] == reason]
