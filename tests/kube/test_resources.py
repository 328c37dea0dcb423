"""What is kept of the objects that are read by the ten thousand."""

from __future__ import annotations

import json

from hami.kube.resources import AGENT_LEASES, PODS


def test_of_a_pod_s_mounts_those_are_kept_that_may_lead_out_of_a_slice() -> None:
    paths = ["/data", "/run/hami", "/var/run/hami/x", "/", "/./.", "/a/../run", "/etc/x", "/srv"]
    mounts = [{"name": "v", "mountPath": path} for path in paths]
    container = {"name": "c", "volumeMounts": mounts, "env": [{"name": "A", "value": "1"}]}
    spec = {
        "containers": [container],
        "initContainers": [container],
        "ephemeralContainers": [container],
        "volumes": [{"name": "v", "hostPath": {"path": "/dev"}}],
    }
    pod = PODS.decoder.decode(json.dumps({"spec": spec}))
    lists = (pod.spec.containers, pod.spec.init_containers, pod.spec.ephemeral_containers)
    for (found,) in lists:
        assert [mount.mount_path for mount in found.volume_mounts] == paths[1:-1]
        assert found.env is None
    assert pod.spec.volumes is None


def test_of_an_agent_s_lease_that_is_kept_which_says_whose_it_is_and_when_it_was_renewed() -> None:
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u"}
    metadata = {
        "name": "hami-acme-n1", "namespace": "kube-node-lease", "resourceVersion": "7", "uid": "v",
        "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"hami.io/agent": "ACME"},
        "annotations": {"a": "b"}, "ownerReferences": [owner],
    }  # fmt: skip
    spec = {"holderIdentity": "n1", "renewTime": "2026-01-01T00:00:00.000000Z"}
    lease = AGENT_LEASES.decoder.decode(json.dumps({"metadata": metadata, "spec": spec}))
    about = lease.metadata
    assert (about.name, about.resource_version, about.uid) == ("hami-acme-n1", "7", "v")
    assert about.labels == {"hami.io/agent": "ACME"}
    assert (about.annotations, about.owner_references, about.creation_timestamp) == (None,) * 3
    assert (lease.spec.holder_identity, lease.spec.renew_time) == (*spec.values(),)
