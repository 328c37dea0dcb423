"""What is kept of the objects that are read by the ten thousand."""

from __future__ import annotations

import json

from hami.kube.resources import PODS


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
