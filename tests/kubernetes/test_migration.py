"""From HAMi to hami and back on a real API server: the documented steps, command by command.

No kubelet runs here; what a node's containers do meanwhile is in test_node_beside_hami.py. Helm's own
commands are played: a release is installed by creating the chart's objects.
"""

from __future__ import annotations

import json
import shlex
import subprocess

import pytest
import yaml
from typer.testing import CliRunner

from hami.cli.app import app
from hami.migration.steps import Naming, plan

from .client import node_path
from .hami_release import APPS, HamiRelease
from .objects import a_pod
from .processes import until

IDENTITY = "hami.io/node-identity"


@pytest.fixture
def theirs(cluster):
    with HamiRelease(
        cluster.admin, cluster.namespace, devicePlugin={"deviceSplitCount": 5}
    ) as theirs:
        yield theirs


def check(cluster, *arguments, user="admin"):
    config = str(cluster.plane.kubeconfig(user))
    result = CliRunner().invoke(app, ["migrate", "check", "--kubeconfig", config, "--json", *arguments])  # fmt: skip
    return result.exit_code, json.loads(result.stdout) if result.stdout else result.stderr


def steps(cluster):
    naming = Naming(
        hami_namespace=cluster.namespace,
        namespace=cluster.namespace,
        strategy={"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}},
    )
    return plan(naming)


def run(cluster, lines, node=""):
    """The lines of one way of a step; those of Helm are played elsewhere."""
    for line in lines:
        words = shlex.split(line.replace("NODE", node))
        if words[0] == "kubectl":
            command = [cluster.plane.bin / "kubectl", "--kubeconfig", cluster.plane.kubeconfig()]
            done = subprocess.run([*map(str, command), *words[1:]], check=False, capture_output=True, text=True, timeout=60)  # fmt: skip
            assert done.returncode == 0, (line, done.stderr)


def ours(cluster):
    """The DaemonSet that our chart makes with beside-hami.yaml, and its one label."""
    labels = {"app.kubernetes.io/component": "device-plugin"}
    term = {"matchExpressions": [{"key": "hami.io/node-agent", "operator": "In", "values": ["hami"]}]}  # fmt: skip
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}  # fmt: skip
    spec = {
        "affinity": affinity,
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "device-plugin", "image": "example.com/none:1"}],
    }
    body = {
        "metadata": {"name": "gpus-device-plugin-nvidia"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }
    cluster.admin.create(f"{APPS}/namespaces/{cluster.namespace}/daemonsets", body)


def plugins_on(cluster):
    """By node: whose device plugin is there."""
    found = {}
    for pod in cluster.pods(cluster.namespace):
        component = pod["metadata"].get("labels", {}).get("app.kubernetes.io/component", "")
        if component.endswith("device-plugin") and pod["spec"].get("nodeName"):
            found.setdefault(pod["spec"]["nodeName"], []).append(component)
    return found


def labelled(cluster, *names):
    for name in names:
        cluster.admin.merge(node_path(name), {"metadata": {"labels": {"gpu": "on"}}})


def devices(cluster, node):
    register = cluster.admin.get(node_path(node))["metadata"]["annotations"]["hami.io/node-nvidia-register"]  # fmt: skip
    return [one["id"] for one in json.loads(register)]


# hami migrate check.


def test_check_reads_the_cluster_and_changes_nothing(cluster, theirs):
    cluster.add_nodes("n1", "n2", devices="t4x2")
    labelled(cluster, "n1", "n2")
    theirs.bound(a_pod("old", gpu=1, mem=1000), "n1", f"{devices(cluster, 'n1')[0]},NVIDIA,1000,0:;")  # fmt: skip
    before = len(cluster.writes("admin"))
    code, found = check(cluster)
    assert len(cluster.writes("admin")) == before
    assert code == 0, found
    assert found["release"] == {"name": "hami", "namespace": cluster.namespace}
    assert found["nodes"] == ["n1", "n2"]
    assert found["unsigned"] == [f"{cluster.namespace}/old"]
    kept = [one["about"] for one in found["findings"] if one["bearing"] == "keeps running"]
    assert kept == ["n1"]
    assert found["steps"][1]["commands"][0].endswith(f"-n {cluster.namespace} --replicas=0")


def test_check_takes_the_values_of_the_release_or_of_a_file(cluster, theirs, tmp_path):
    (tmp_path / "values.yaml").write_text(yaml.safe_dump({"devicePlugin": {"hostNetwork": True}}))
    assert check(cluster)[0] == 0
    code, found = check(cluster, "--values", str(tmp_path / "values.yaml"))
    assert code == 1
    assert [one["about"] for one in found["findings"] if one["bearing"] == "cannot be honoured"] == ["devicePlugin.hostNetwork"]  # fmt: skip


def test_check_says_which_rights_are_missing(cluster, theirs):
    code, found = check(cluster, user="hami")
    denied = [one["text"] for one in found["findings"] if one["about"] == "rights"]
    assert code == 1
    assert any("list deployments" in text for text in denied)


def test_check_says_that_there_is_no_hami(cluster):
    code, said = check(cluster)
    assert code == 2
    assert "has no HAMi" in said


# The steps.


def test_the_documented_steps_and_back(cluster, theirs):
    cluster.add_nodes("n1", "n2", devices="t4x2")
    labelled(cluster, "n1", "n2")
    _, schedulers, leave, node, finish = steps(cluster)
    gpu = devices(cluster, "n1")[0]
    theirs.bound(a_pod("old", gpu=1, mem=9000), "n1", f"{gpu},NVIDIA,9000,0:;")
    cluster.plane.kube_scheduler()
    both = {"n1": ["hami-device-plugin"], "n2": ["hami-device-plugin"]}
    until("HAMi's plugin is on both nodes", lambda: plugins_on(cluster) == both)
    plugins = uids(cluster)

    # The scheduler. Both webhooks are there, and nobody answers HAMi's.
    run(cluster, schedulers.commands[:-1])
    service = cluster.service(
        signing_key_secret=f"{cluster.namespace}/hami-signing-key",
        public_keys=f"{cluster.namespace}/hami-signing-keys",
    )
    cluster.kube_scheduler(service.url)
    cluster.webhook(service)
    ours(cluster)
    cluster.agrees(service)
    cluster.add_pods(a_pod("new", scheduler="default-scheduler", gpu=1, mem=9000))
    (new,) = cluster.bound("new")
    says = new["metadata"]["annotations"]
    assert new["spec"]["schedulerName"] == "hami-scheduler"
    assert new["metadata"]["labels"]["hami.io/vgpu-node"] == says["hami.io/vgpu-node"]
    assert says["hami.io/allocation-signature"]
    assert f"{gpu},NVIDIA,9000" not in says["hami.io/vgpu-devices-allocated"], "HAMi's pod has it"

    # HAMi's plugin may leave nodes, and stays until it is told to.
    run(cluster, leave.commands)
    until("the patch was seen", lambda: observed(cluster, "hami-device-plugin"))
    assert plugins_on(cluster) == both
    assert uids(cluster) == plugins, "no plugin was restarted"

    # n1 becomes ours and HAMi's again; n2 is nobody's business meanwhile.
    run(cluster, node.commands[:4], "n1")
    assert plugins_on(cluster) == {"n2": ["hami-device-plugin"]}
    says_identity(cluster, "n1", "NVIDIA=kubelet")
    run(cluster, node.commands[4:], "n1")
    moved = {"n1": ["device-plugin"], "n2": ["hami-device-plugin"]}
    until("our agent is on n1", lambda: plugins_on(cluster) == moved)
    run(cluster, node.back, "n1")
    until("HAMi's plugin is back", lambda: plugins_on(cluster) == both)
    assert IDENTITY not in cluster.admin.get(node_path("n1"))["metadata"]["annotations"]

    # All of it, to the end.
    for name in ("n1", "n2"):
        run(cluster, node.commands[:4], name)
        says_identity(cluster, name, "NVIDIA=kubelet")
        run(cluster, node.commands[4:], name)
    until("our agents are everywhere", lambda: plugins_on(cluster) == {"n1": ["device-plugin"], "n2": ["device-plugin"]})  # fmt: skip
    run(cluster, finish.commands)
    assert all("hami.io/node-agent" not in one["metadata"]["labels"] for one in cluster.nodes())
    cluster.agrees(service)

    # Back, from the last step to the first.
    run(cluster, finish.back)
    assert all(IDENTITY not in one["metadata"]["annotations"] for one in cluster.nodes())
    run(cluster, leave.back)
    run(cluster, schedulers.back)
    scheduler = cluster.admin.get(f"{APPS}/namespaces/{cluster.namespace}/deployments/hami-scheduler")  # fmt: skip
    assert scheduler["spec"]["replicas"] == 1
    cluster.admin.delete(f"{APPS}/namespaces/{cluster.namespace}/daemonsets/gpus-device-plugin-nvidia")  # fmt: skip


def says_identity(cluster, node, text):
    """As our agent does when it serves."""
    cluster.admin.merge(node_path(node), {"metadata": {"annotations": {IDENTITY: text}}})


def observed(cluster, name):
    found = cluster.admin.get(f"{APPS}/namespaces/{cluster.namespace}/daemonsets/{name}")
    return found["status"].get("observedGeneration") == found["metadata"]["generation"]


def uids(cluster):
    """Of HAMi's device plugins."""
    return {
        pod["metadata"]["uid"]
        for pod in cluster.pods(cluster.namespace)
        if pod["metadata"].get("labels", {}).get("app.kubernetes.io/component")
        == "hami-device-plugin"
    }
