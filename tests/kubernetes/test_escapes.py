"""Ways out of a slice, closed by a real API server and kube-scheduler: at admission and past it."""

from __future__ import annotations

import base64

import pytest

from .chart import rendered
from .client import Refused, pods_path
from .objects import a_container, a_pod
from .processes import until
from .release import PATHS

PAST = {"hami.io/webhook": "ignore"}
PRIVILEGED = {"securityContext": {"privileged": True}}
VISIBLE = "NVIDIA_VISIBLE_DEVICES"


@pytest.fixture
def reviewed(cluster):
    """A scheduler, and in front of it the chart's webhooks."""
    cluster.add_nodes("n1")
    service = cluster.scheduled()
    authority = cluster.plane.authority.certificate.read_bytes()
    hooks = {
        "certificate": {"source": "secret", "caBundle": base64.b64encode(authority).decode()},
        "webhooks": {
            "url": service.webhook.removesuffix("/webhook"),
            "pods": {"ignoreLabel": True},
        },
    }
    (configuration,) = [
        thing for thing in rendered(hooks) if thing["kind"] == "MutatingWebhookConfiguration"
    ]
    cluster.admin.create(PATHS[configuration["kind"]], configuration)
    probe = a_pod("probe", scheduler="default-scheduler", gpu=1)

    def called() -> bool:
        answer = cluster.admin.create(pods_path(cluster.namespace) + "?dryRun=All", probe)
        return answer["spec"]["schedulerName"] == "hami-scheduler"

    until("the webhook is called", called)
    return cluster, service


def a_guest(name, *, past=False, volumes=(), **container):
    """A pod with one slice, and these fields in its container."""
    pod = a_pod(name, containers=[a_container(gpu=1, mem=1000) | container])
    pod["spec"]["volumes"] = list(volumes)
    pod["metadata"]["labels"] = PAST if past else {}
    return pod


def over(path):
    return {
        "volumes": [{"name": "v", "emptyDir": {}}],
        "volumeMounts": [{"name": "v", "mountPath": path}],
    }


def test_what_leads_out_of_a_slice_is_refused_at_admission_and_past_it(reviewed):
    cluster, service = reviewed
    ways = {
        "privileged": (PRIVILEGED, "container main is privileged"),
        "page": (over("/var/run/hami/nvidia/limits"), "over the limits of its slice"),
        "folder": (over("/run/hami/nvidia/"), "over the limits of its slice"),
        "above": (over("//run/"), "over the limits of its slice"),
        "dots": (over("/data/../run/hami"), "write it without"),
    }
    for name, (fields, said) in ways.items():
        with pytest.raises(Refused) as no:
            cluster.add_pod(a_guest(name, **fields))
        assert said in no.value.message
        cluster.add_pod(a_guest(name, past=True, **fields))
        cluster.refused(name, said)
        assert until(f"an event says so of {name}", lambda n=name: cluster.events(n, "FilteringFailed"))  # fmt: skip
    assert {amount.slots for amount in service.used().values()} == {0}
    cluster.add_pod(a_guest("honest", **over("/data")))
    cluster.bound("honest")
    cluster.agrees(service)


def test_ephemeral_containers_beside_slices_are_looked_at(reviewed):
    cluster, _ = reviewed
    node = {"name": "dev", "hostPath": {"path": "/dev"}}
    cluster.add_pod(a_guest("p", volumes=[node]))
    cluster.bound("p")
    path = pods_path(cluster.namespace, "p")

    def debug(name, **fields):
        had = cluster.pod("p")["spec"].get("ephemeralContainers", [])
        more = {"name": name, "image": "example.com/none:1", **fields}
        patch = {"spec": {"ephemeralContainers": [*had, more]}}
        return cluster.admin.merge(path + "/ephemeralcontainers", patch)

    bad = {
        "privileged": PRIVILEGED,
        "sets NVIDIA_VISIBLE_DEVICES": {"env": [{"name": VISIBLE, "value": "all"}]},
        "mounts /dev of the node": {"volumeMounts": [{"name": "dev", "mountPath": "/host"}]},
        "over the limits": {"volumeMounts": [{"name": "dev", "mountPath": "/run/hami"}]},
    }
    # A label that keeps the first webhook away comes too late.
    cluster.admin.merge(path, {"metadata": {"labels": PAST}})
    for said, fields in bad.items():
        with pytest.raises(Refused, match=r'"ephemeral\.vgpu\.hami\.io" denied the request') as no:
            debug("debugger", **fields)
        assert said in no.value.message
    assert "ephemeralContainers" not in cluster.pod("p")["spec"]
    (added,) = debug("debugger")["spec"]["ephemeralContainers"]
    assert added["env"] == [{"name": VISIBLE, "value": "void"}]
    debug("another", env=[{"name": VISIBLE, "value": "void"}])


def test_beside_no_slices_ephemeral_containers_may_be_anything(reviewed):
    cluster, _ = reviewed
    cluster.add_pod(a_pod("p"))
    cluster.bound("p")
    more = {"name": "d", "image": "example.com/none:1", **PRIVILEGED}
    patch = {"spec": {"ephemeralContainers": [more]}}
    path = pods_path(cluster.namespace, "p") + "/ephemeralcontainers"
    (added,) = cluster.admin.merge(path, patch)["spec"]["ephemeralContainers"]
    assert "env" not in added
