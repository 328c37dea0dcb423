"""From our agent to HAMi's plugin and back on one node: as documented, and after a crash."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from .hami_plugin import LOCK, REGISTER, HamiPlugin, serving
from .processes import until
from .real_node import a_running_pod, grants_of
from .simulated import simulated_gpus
from .test_node_nvidia import LIBRARY, spec_of

pytestmark = pytest.mark.timeout(300)  # kubelet tries again every 10 to 15 s

GUIDE = Path(__file__).parents[2] / "docs/node-agent.md"
GPU = "nvidia.com/gpu"
SLOTS = 20
POD_COUNT = 6


@pytest.fixture
def agent(node, tmp_path):
    if not LIBRARY.exists():
        pytest.skip(f"needs {LIBRARY}, in place of the library that enforces limits")
    with simulated_gpus("a100-40gx2", node.name, tmp_path) as section:
        agent = node.agent(
            "nvidia",
            devices=section,
            library=LIBRARY,
            hook_path=node.worker.home / "hook",
        )
        until("it needs no lock", lambda: said(node).startswith("NVIDIA=kubelet"))
        until("the devices are there", lambda: allocatable(node) == SLOTS)
        ids = [gpu["id"] for gpu in json.loads(annotations(node)[REGISTER])]
        (node.worker.cdi / "nvidia.json").write_text(json.dumps(spec_of(ids)))
        yield agent


def annotations(node):
    return node.object()["metadata"]["annotations"]


def said(node):
    return annotations(node).get("hami.io/node-identity", "")


def allocatable(node):
    return int(node.object()["status"]["allocatable"].get(GPU, "0"))


def documented():
    """The commands of the steps, in their order."""
    text = GUIDE.read_text().partition("### Beside HAMi, and back to it")[2].partition("\n## ")[0]
    return [" ".join(found.split()) for found in re.findall(r"`(kubectl [^`]*)`", text)]


def follow(node, command):
    words = shlex.split(command.replace("NODE", node.name).removeprefix("kubectl "))
    config = ["--kubeconfig", str(node.cluster.plane.kubeconfig())]
    done = subprocess.run(
        [str(node.worker.bin / "kubectl"), *config, *words],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    return done.stdout


def theirs(node):
    """It finds the very devices that our agent has found."""
    register = json.dumps(json.loads(annotations(node)[REGISTER]), separators=(",", ":"))
    return HamiPlugin(node.admin, node.name, register)


def burst(node, prefix):
    """Pods that ask for different amounts, all at once; their names."""
    names = [f"{prefix}{n}" for n in range(POD_COUNT)]
    pods = [a_running_pod(name, gpu=1, mem=1000 + 100 * n) for n, name in enumerate(names)]
    node.cluster.add_pods(*pods)
    return names


def wrong(node, names):
    """Containers whose variables tell of another grant than their own pod's."""
    pods = {pod["metadata"]["name"]: pod for pod in node.cluster.pods(node.cluster.namespace)}
    found = {}
    for name in names:
        ((device, memory, _),) = grants_of(pods[name], "nvidia")["main"]
        env = node.container(name, "main").env
        seen = env["NVIDIA_VISIBLE_DEVICES"], env["CUDA_DEVICE_MEMORY_LIMIT_0"]
        if seen != (device, f"{memory}m"):
            found[name] = seen, (device, memory)
    return found


def test_the_documented_steps_lead_to_hamis_plugin_and_back(node, agent):
    cordon, look, _, uncordon, forget, remove = documented()
    ours = burst(node, "before")
    node.starts(*ours, seconds=120)
    running = {c.pod: c.pid for c in node.containers()}

    follow(node, cordon)
    assert agent.stop() == 0
    assert "NVIDIA=kubelet" not in follow(node, look)
    with serving(theirs(node)):
        until("the devices are back", lambda: allocatable(node) == SLOTS)
        follow(node, uncordon)
        served = burst(node, "theirs")
        node.starts(*served, seconds=200)
        assert wrong(node, served) == {}
        assert LOCK not in annotations(node)
        follow(node, cordon)
    agent.start()
    until("the devices are back", lambda: allocatable(node) == SLOTS)
    follow(node, uncordon)
    until("it needs no lock again", lambda: said(node).startswith("NVIDIA=kubelet"))
    after = burst(node, "after")
    node.starts(*after, seconds=120)

    now = {c.pod: c.pid for c in node.containers()}
    assert {pod: now[pod] for pod in running} == running, "those of before ran on"
    assert set(now) >= {*ours, *served, *after}
    assert wrong(node, served) == {}
    for name in (*ours, *after):
        assert node.container(name, "main").env["HAMI_SLICE_ID"]
    assert agent.stop() == 0
    follow(node, forget)
    follow(node, remove)
    assert said(node) == ""


def test_a_killed_agent_and_hamis_plugin_at_once(node, agent):
    agent.kill()
    assert said(node).startswith("NVIDIA=kubelet")
    with serving(theirs(node)):
        until("the devices are there", lambda: allocatable(node) == SLOTS)
        names = burst(node, "p")
        node.starts(*names, seconds=200)
        assert wrong(node, names) == {}
