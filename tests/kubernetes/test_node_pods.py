"""Pods on a real kubelet and containerd: each container gets its own grant, whatever the pod's shape."""

from __future__ import annotations

import json
import os
import signal

import pytest

from hami.slices.limits_page import read_page

from .objects import a_pod
from .processes import until
from .real_node import MIB, a_job, a_running_pod, an_app, grants_of

pytestmark = pytest.mark.timeout(300)  # kubelet tries again every 10 to 15 s

OUT = {"volumeMounts": [{"name": "out", "mountPath": "/out"}]}
OUT_VOLUME = {"volumes": [{"name": "out", "emptyDir": {}}]}


@pytest.fixture
def agent(node):
    return node.agent(devices={"devices": "mockx4"})


def test_two_pods_share_a_device_and_each_sees_its_own_part(node, agent):
    node.cluster.add_pods(
        a_running_pod("a", mock=1, mockmem=3000, mockcores=20),
        a_running_pod("b", mock=1, mockmem=5000, mockcores=30),
        a_running_pod("none"),
    )
    node.starts("a", "b", "none")
    assert node.agrees() == 2
    a = node.container("a", "main")
    assert json.loads(a.read("/run/hami/mock.json"))["sliceId"] == a.env["HAMI_SLICE_ID"]
    assert a.env["MOCK_DEVICE_MEMORY_LIMIT_0"] == "3000m"


def test_every_container_of_a_pod_has_its_own_slice(node, agent):
    apps = [
        an_app("one", mock=1, mockmem=1000),
        an_app("none"),
        an_app("two", mock=2, mockmem=2000, mockcores=10),
    ]
    node.cluster.add_pod(a_running_pod("p", containers=apps))
    node.starts("p")
    assert node.agrees() == 2


def test_init_containers_and_sidecars_have_their_own_too(node, agent):
    """An init container's ids go on to later containers: ids say nothing about whose grant it is."""
    keep = "cat /run/hami/mock/limits > /out/{name}"
    inits = [
        a_job("first", runs=keep.format(name="first"), mock=1, mockmem=1000) | OUT,
        an_app("side", policy="Always", mock=1, mockmem=2000),
        a_job("second", runs=keep.format(name="second"), mock=2, mockmem=3000) | OUT,
    ]
    apps = [an_app("main", mock=1, mockmem=4000) | OUT, an_app("more", mock=1, mockmem=5000)]
    node.cluster.add_pod(a_running_pod("p", inits=inits, containers=apps, spec=OUT_VOLUME))
    [pod] = node.starts("p")
    assert node.agrees() == 3
    main = node.container("p", "main")
    for name in ("first", "second"):
        page = read_page(main.read(f"/out/{name}"))
        seen = [(d.uuid, d.memory_bytes // MIB, d.cores) for d in page.devices]
        assert seen == grants_of(pod, "mock")[name]


def test_the_last_container_s_start_is_the_pod_s_success(node, agent):
    node.cluster.add_pod(a_running_pod("p", mock=1, mockmem=1000))
    node.starts("p")
    phase = "hami.io/bind-phase"
    until(
        "the phase is success",
        lambda: node.cluster.pod("p")["metadata"]["annotations"][phase] == "success",
    )
    annotations = node.object()["metadata"]["annotations"]
    assert annotations["hami.io/node-identity"] == "MOCK=kubelet"
    assert "hami.io/mutex.lock" not in annotations


def test_a_restarted_container_gets_the_same_slice(node, agent):
    node.cluster.add_pod(a_running_pod("p", mock=1, mockmem=1000))
    node.starts("p")
    before = node.container("p", "main")
    os.kill(before.pid, signal.SIGKILL)

    def another():
        return next((c for c in node.containers("p") if c.pid != before.pid), None)

    after = until("it was restarted", another)
    assert after.env["HAMI_SLICE_ID"] == before.env["HAMI_SLICE_ID"]
    assert node.agrees() == 1


def test_a_tenant_can_write_its_usage_only_and_little_of_that(node, agent):
    tries = (
        "echo x > /run/hami/mock/limits; echo limits $?; "
        "dd if=/dev/zero of=/run/hami/mock/usage bs=1M count=64; echo usage $?"
    )
    runs = f"({tries}) > /out/said 2>&1; echo > /out/done; exec sleep 1000000"
    app = an_app(mock=1, mockmem=1000, runs=runs) | OUT
    node.cluster.add_pod(a_running_pod("p", containers=[app], spec=OUT_VOLUME))
    node.starts("p")
    tenant = node.container("p", "main")
    until("it has tried", lambda: tenant.read("/out/done"), passing=(FileNotFoundError,))
    said = tenant.read("/out/said").decode()
    assert "limits: Read-only file system" in said
    assert "No space left on device" in said
    assert [f"{what} 0" in said for what in ("limits", "usage")] == [False, False]
    assert node.agrees() == 1


def test_sixty_pods_at_once(node):
    """120 containers; nobody gets another's, nothing is refused, and nothing is left of them."""
    node.agent(devices={"devices": "mockx16"})
    names = [f"p{n}" for n in range(60)]
    node.cluster.add_pods(
        *(
            a_pod(
                name,
                containers=[
                    an_app("a", mock=1, mockmem=200 + n),
                    an_app("b", mock=1, mockmem=300 + n),
                ],
            )
            for n, name in enumerate(names)
        )
    )
    node.starts(*names, seconds=110)
    assert node.agrees() == 120
    assert [text for name in names for text in node.cluster.events(name, "SliceRefused")] == []
    node.remove(*names)
    node.gone(*names)
    node.nothing_is_left()


def test_of_a_job_that_has_ended_nothing_is_left(node, agent):
    once = a_pod("p", containers=[a_job("main", mock=1, mockmem=1000)], spec={"restartPolicy": "Never"})  # fmt: skip
    node.cluster.add_pod(once)
    until("it has ended", lambda: node.cluster.pod("p")["status"].get("phase") == "Succeeded", seconds=60)  # fmt: skip
    node.nothing_is_left()


def test_the_agent_writes_nothing_but_status_events_and_its_lease(node, agent):
    names = ["a", "b", "c"]
    node.cluster.add_pods(*(a_running_pod(name, mock=1, mockmem=1000) for name in names))
    node.starts(*names)
    for name in names:
        until(
            "success is written",
            lambda name=name: node.cluster.pod(name)["metadata"]["annotations"]["hami.io/bind-phase"] == "success",
        )  # fmt: skip
    account = f"system:serviceaccount:{node.cluster.namespace}:hami-node-agent"
    # The fixture's own probes name no program.
    writes = [w for w in node.cluster.plane.writes() if w.user == account and w.agent]
    assert {(w.verb, w.what) for w in writes} <= {
        ("patch", "pods/status"), ("patch", "nodes/status"), ("create", "events"), ("patch", "events"),
        ("create", "leases"), ("patch", "leases"),
    }  # fmt: skip
    # It patches its Lease, and makes it where there is none yet.
    absent = [w for w in writes if w.status == 404]
    assert {(w.verb, w.what) for w in absent} <= {("patch", "leases")}
    assert len(absent) <= 1
    assert {w.status for w in writes if w not in absent} <= {200, 201}
    assert sorted(w.name for w in writes if w.what == "pods/status") == names
