"""The agents and the monitor: on which nodes, with what of the node, and for a vendor of one's own."""

from __future__ import annotations

import pytest

from ..kubernetes.chart import rendered, values
from .objects import all_of, container, flags, one, pod_of

ACME = {
    "enabled": True,
    "managedResources": ["acme.com/device"],
    "annotations": {"node": ["acme.com/register"]},
    "selectors": [{"acme.com/present": "yes"}],
    "devicePlugin": {
        "enabled": True,
        "image": {"registry": "r.acme.com", "repository": "hami-acme", "tag": "3"},
        "args": ["--acme-socket=/run/acme"],
        "env": [{"name": "ACME", "value": "1"}],
        "hostPaths": [{"name": "acme", "path": "/run/acme", "readOnly": True}],
    },
}


def agent(vendor="nvidia", values=None):
    return one(rendered(values), "DaemonSet", f"hami-device-plugin-{vendor}")


def monitor(values=None):
    return one(rendered(values), "DaemonSet", "hami-monitor")


def terms(workload):
    """The labels that a node must have, each of several ways; none: every node."""
    affinity = pod_of(workload).get("affinity")
    if affinity is None:
        return []
    required = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return [
        {e["key"]: e["values"][0] for e in term["matchExpressions"]}
        for term in required["nodeSelectorTerms"]
    ]


def mounts(workload):
    """Directories of the node, by where the container has them, with how."""
    (only,) = pod_of(workload)["containers"]
    paths = {v["name"]: v["hostPath"]["path"] for v in pod_of(workload)["volumes"] if "hostPath" in v}  # fmt: skip
    return {
        mount["mountPath"]: (paths[mount["name"]], mount)
        for mount in only["volumeMounts"]
        if mount["name"] in paths
    }


def test_agents_are_those_of_enabled_vendors_that_hami_serves():
    def agents(**vendors):
        on = {"vendors": {key: {"enabled": enabled} for key, enabled in vendors.items()}}
        return [d["metadata"]["name"] for d in all_of(rendered(on), "DaemonSet")]

    assert agents() == ["hami-device-plugin-nvidia", "hami-monitor"]
    assert agents(MOCK=True, DCU=True) == [
        "hami-device-plugin-mock", "hami-device-plugin-nvidia", "hami-monitor",
    ]  # fmt: skip
    assert agents(NVIDIA=False) == [], "nothing to measure either"


def test_two_agents_never_serve_one_node():
    for found in (agent(), monitor()):
        assert found["spec"]["updateStrategy"]["rollingUpdate"]["maxSurge"] == 0
    off = {"node": {"devicePlugin": {"updateStrategy": {"type": "OnDelete"}}}}
    assert agent(values=off)["spec"]["updateStrategy"] == {"type": "OnDelete"}


def test_nodes_are_chosen_by_one_of_several_labels():
    selectors = values()["vendors"]["NVIDIA"]["selectors"]
    assert {"gpu": "on"} in selectors, "HAMi's"
    assert terms(agent()) == selectors
    assert terms(agent(values={"vendors": {"NVIDIA": {"selectors": []}}})) == []


def test_the_monitor_is_where_any_agent_is():
    both = {"vendors": {"ACME": ACME, "NVIDIA": {"selectors": [{"gpu": "on"}]}}}
    assert terms(monitor(both)) == [{"acme.com/present": "yes"}, {"gpu": "on"}]
    assert terms(monitor({"vendors": {"MOCK": {"enabled": True}}})) == [], "MOCK is everywhere"


def test_a_vendor_of_one_s_own_is_an_entry():
    found = agent("acme", {"vendors": {"ACME": ACME}})
    only = container(found, "device-plugin")
    assert only["image"] == "r.acme.com/hami-acme:3"
    assert flags(only)["vendor"] == "ACME"
    assert flags(only)["acme-socket"] == "/run/acme"
    assert {"name": "ACME", "value": "1"} in only["env"]
    path, mount = mounts(found)["/run/acme"]
    assert (path, mount["readOnly"]) == ("/run/acme", True)
    assert "/run/acme" in mounts(monitor({"vendors": {"ACME": ACME}}))


def test_what_lies_on_the_node_is_where_it_is():
    """A path in a slice's CDI spec means the same to the runtime as to the agent."""
    told = flags(container(agent(), "device-plugin"))
    seen = mounts(agent())
    for flag in ("kubelet-dir", "cdi-dir"):
        assert seen[told[flag]][0] == told[flag]
    state = told["slices"].rpartition("/")[0]
    path, mount = seen[state]
    assert (path, mount["mountPropagation"]) == (state, "Bidirectional"), "the tmpfs of each slice"
    assert {seen[p][0] for p in told["cdi-read-dirs"].split(",")} == set(told["cdi-read-dirs"].split(","))  # fmt: skip
    assert seen[told["cgroup-root"]][0] == "/sys/fs/cgroup"
    theirs = mounts(monitor())
    assert theirs[state][1]["mountPropagation"] == "HostToContainer"
    assert flags(container(monitor(), "monitor"))["slices"] == told["slices"]


def test_paths_may_be_others():
    paths = {"kubelet": "/k", "state": "/s", "cdi": "/c", "vendorCdi": ""}
    found = agent(values={"node": {"paths": paths}})
    told = flags(container(found, "device-plugin"))
    assert (told["kubelet-dir"], told["slices"], told["cdi-read-dirs"]) == (
        "/k/device-plugins", "/s/slices", "/c",
    )  # fmt: skip
    assert {"/k/device-plugins", "/s", "/c"} <= mounts(found).keys()
    assert "/etc/cdi" not in mounts(found)


def test_an_agent_without_keys_does_not_start():
    volumes = {v["name"]: v for v in pod_of(agent())["volumes"]}
    assert volumes["keys"]["configMap"] == {"name": "hami-signing-keys"}, "and not optional"
    told = flags(container(agent(), "device-plugin"))
    mounted = {m["name"]: m["mountPath"] for m in container(agent(), "device-plugin")["volumeMounts"]}  # fmt: skip
    assert told["verification-keys"] == f"{mounted['keys']}/public.pem"
    off = agent(values={"signing": {"enabled": False}})
    assert "verification-keys" not in flags(container(off, "device-plugin"))


@pytest.mark.parametrize("privileged", [True, False])
def test_a_monitor_that_is_not_privileged_has_a_few_capabilities(privileged):
    found = monitor({"node": {"monitor": {"privileged": privileged}}})
    context = container(found, "monitor")["securityContext"]
    assert context.get("privileged", False) is privileged
    if not privileged:
        assert context["capabilities"] == {
            "drop": ["ALL"],
            "add": ["SYS_PTRACE", "DAC_OVERRIDE", "SYS_ADMIN"],
        }


def test_nodes_may_have_a_namespace_of_their_own():
    apart = {"node": {"namespace": "nodes"}, "networkPolicy": {"enabled": True}}
    objects = rendered(apart)
    where = {
        (thing["kind"], thing["metadata"]["name"]): thing["metadata"].get("namespace")
        for thing in objects
    }
    theirs = {key for key, namespace in where.items() if namespace == "nodes"}
    assert theirs == {
        ("DaemonSet", "hami-device-plugin-nvidia"), ("DaemonSet", "hami-monitor"),
        ("ServiceAccount", "hami-node-agent"), ("ServiceAccount", "hami-monitor"),
        ("ConfigMap", "hami-node"), ("Service", "hami-device-plugin"), ("Service", "hami-monitor"),
        ("Role", "hami-public-keys"), ("RoleBinding", "hami-public-keys"),
        ("NetworkPolicy", "hami-device-plugin"), ("NetworkPolicy", "hami-monitor"),
    }  # fmt: skip
    told = flags(container(one(objects, "Deployment", "hami-scheduler"), "scheduler"))
    assert told["public-keys"] == "nodes/hami-signing-keys"
    assert "system:serviceaccount:nodes:hami-node-agent" in str(
        one(objects, "ValidatingAdmissionPolicy", "hami-node-agent")
    )
    (hooks,) = all_of(objects, "MutatingWebhookConfiguration")
    rule = hooks["webhooks"][0]["namespaceSelector"]["matchExpressions"][0]
    assert rule["values"] == ["kube-system", "hami", "nodes"]


def test_device_and_node_configuration_reach_every_process():
    configured = {
        "deviceConfig": {"nvidia": {"defaultGPUNum": 2}},
        "nodeConfig": [{"name": "gpu-7", "devicesplitcount": 4}],
        "node": {"devicePlugin": {"settings": {"identity": "lock"}}},
    }
    objects = rendered(configured)
    node = one(objects, "ConfigMap", "hami-node")["data"]
    assert '"devicesplitcount": 4' in node["node-config.json"]
    assert "identity: lock" in node["device-plugin.yaml"]
    scheduler = one(objects, "ConfigMap", "hami-scheduler")["data"]
    assert node["device-config.yaml"] == scheduler["device-config.yaml"]
    assert "defaultGPUNum: 2" in node["device-config.yaml"]
