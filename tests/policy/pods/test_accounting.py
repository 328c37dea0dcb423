"""What bound pods are charged, whatever their annotations have become."""

from __future__ import annotations

import msgspec
import pytest

from hami.domain.allocations import Corrupt
from hami.domain.devices import Usage
from hami.domain.kubernetes.objects import Pod
from hami.hookspecs import hookimpl
from hami.policy.filter.decision import Placed, Refused
from hami.policy.pods.accounting import account_of
from hami.policy.profile.profile_vendor import ProfileVendor
from hami.vendors.registry import Vendors
from hami.wire.allocation import encode_allocation

from ..builders import ACME_YAML, Cluster, a_container, a_device, a_node, a_pod, texts, the_vendors

ALLOCATED, NPUS = "acme.com/allocated", "bolt.io/allocated"


def bound(pod: Pod, *, status: object = None, **annotations: str) -> Pod:
    """The pod on n1 with these annotations; underscores in their names stand for the real keys."""
    named = {{"acme": ALLOCATED, "bolt": NPUS}[key]: text for key, text in annotations.items()}
    data = msgspec.to_builtins(pod)
    data["metadata"]["annotations"] = named
    data["spec"]["nodeName"] = "n1"
    data["status"] = status
    return msgspec.convert(data, Pod)


def charged(pod: Pod, vendors: Vendors | None = None) -> Cluster:
    """A cluster with two ACME devices and a BOLT one, on which this pod runs."""
    node = a_node("n1", a_device("d0"), a_device("d1"), a_device("b0", vendor="BOLT"))
    cluster = Cluster(node, vendors=vendors)
    account = account_of(pod, cluster.vendors)
    if account:
        cluster.table.charge(
            pod.uid, account.allocation, account.unknown, init_ended=account.init_ended
        )
        cluster.ledger.charge(pod, account.running)
    return cluster


def test_what_was_placed_is_charged_again_after_a_restart():
    pod = a_pod(
        "p",
        a_container("a", gpu=2, mem=1000, cores=30),
        a_container("b"),
        a_container("c", npu=1, npumem=4),
    )
    before = Cluster(a_node("n1", a_device("d0"), a_device("d1"), a_device("b0", vendor="BOLT")))
    allocation = before.run(pod)
    data = msgspec.to_builtins(pod)
    data["metadata"]["annotations"] = encode_allocation(allocation, before.vendors.profiles)
    data["spec"]["nodeName"] = "n1"
    account = account_of(msgspec.convert(data, Pod), before.vendors)
    assert account.allocation == allocation
    assert account.problems == account.unknown == ()


@pytest.mark.parametrize(
    ("pod", "annotation", "usage"),
    [
        pytest.param(a_pod("p", a_container("a", gpu=1), init=[a_container("i", gpu=1)]), "d0,ACME,5000,10:;d0,ACME,4000,20:;", Usage(1, 5000, 20), id="init and app: the larger in each dimension"),
        pytest.param(a_pod("p", a_container("a", gpu=1), a_container("b", gpu=1)), "d0,ACME,1000,10:;d0,ACME,2000,20:;", Usage(2, 3000, 30), id="two apps: the sum"),
        pytest.param(a_pod("p", a_container("a", gpu=1), init=[a_container("s", restart="Always", gpu=1)]), "d0,ACME,1000,10:;d0,ACME,2000,20:;", Usage(2, 3000, 30), id="fix: a sidecar runs beside the app"),
        pytest.param(a_pod("p", a_container("a", gpu=2)), "d0,ACME,1000,10:d0,ACME,2000,20:;", Usage(2, 3000, 30), id="fix: two slices of one device in one container are the sum"),
        pytest.param(a_pod("p", a_container("a", gpu=1)), "d0,ACME,1000,10:;;;", Usage(1, 1000, 10), id="trailing empty slots do not count"),
    ],
)  # fmt: skip
def test_usage_of_a_pod_on_a_device(pod, annotation, usage):
    assert charged(bound(pod, acme=annotation)).usage("n1")["d0"] == usage


def finished_init(code: int) -> object:
    return {"initContainerStatuses": [{"name": "i", "state": {"terminated": {"exitCode": code}}}]}


@pytest.mark.parametrize(
    ("status", "usage"),
    [
        pytest.param(finished_init(0), Usage(1, 2000, 5), id="after exit 0 only the app counts"),
        pytest.param(finished_init(1), Usage(1, 5000, 10), id="after a failure it may start again"),
        pytest.param(None, Usage(1, 5000, 10), id="before it ended"),
    ],
)
def test_an_init_containers_share_is_free_once_it_ended(status, usage):
    pod = a_pod("p", a_container("a", gpu=1), init=[a_container("i", gpu=1)])
    cluster = charged(bound(pod, acme="d0,ACME,5000,10:;d0,ACME,2000,5:;", status=status))
    assert cluster.usage("n1")["d0"] == usage


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        pytest.param({}, "2/2 UnknownUsage", id="a missing allocation"),
        pytest.param({"acme": ""}, "2/2 UnknownUsage", id="an emptied allocation"),
        pytest.param({"acme": "d0,ACME,x,0:;"}, "2/2 UnknownUsage", id="an unreadable allocation"),
        pytest.param({"acme": ";;;d0,ACME,1,0:;"}, "2/2 UnknownUsage", id="an allocation for a container that is not there"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_keeps_new_pods_away_from_that_vendor_alone(annotations, expected):
    cluster = charged(bound(a_pod("old", gpu=1), **annotations))
    assert texts(cluster.try_pod(a_pod("new", gpu=1))) == {"n1": expected}
    assert cluster.try_pod(a_pod("other", npu=1)).allocation.node == "n1"


@pytest.mark.parametrize(
    ("asks", "left"),
    [
        pytest.param({"gpu": 1, "mem": 3000}, 5000, id="MiB"),
        pytest.param({"gpu": 1, "pct": 25}, 6000, id="a percentage"),
        pytest.param({"gpu": 2, "mem": 3000}, 5000, id="two devices: so much of each"),
        pytest.param({"gpu": 1, "mem": 9000}, 8000, id="more than any device has: it is on none"),
    ],
)  # fmt: skip
def test_at_most_what_a_pod_asks_for_is_kept_free_for_it_on_each_device(asks, left):
    cluster = charged(bound(a_pod("old", **asks)))
    assert cluster.usage("n1")["d0"] == Usage()
    for device in ("d0", "d1"):
        only = {"acme.com/use-uuid": device}
        more = cluster.try_pod(a_pod("more", gpu=1, mem=left + 1, annotations=only))
        assert texts(more), device
        fits = a_pod(f"fits-{device}", gpu=1, mem=left, annotations=only)
        assert cluster.run(fits).grants[0].device_id == device
    cluster.delete(a_pod("old"))
    assert {name: used.memory_mib for name, used in cluster.usage("n1").items()} == {"d0": left, "d1": left}  # fmt: skip


def test_containers_that_run_together_keep_their_sum_free():
    old = a_pod("old", a_container("a", gpu=1, mem=1000), a_container("b", gpu=1, mem=2000),
                init=[a_container("i", gpu=1, mem=2500)])  # fmt: skip
    cluster = charged(bound(old))
    assert isinstance(cluster.try_pod(a_pod("p", gpu=1, mem=5000)), Placed)
    assert isinstance(cluster.try_pod(a_pod("p", gpu=1, mem=5001)), Refused)


def kubelet_says(*statuses, phase="Pending", started="2026-01-01T00:00:00Z"):
    shown = [{"name": name, "containerID": id} for name, id in statuses]
    return {"phase": phase, "startTime": started, "containerStatuses": shown}


@pytest.mark.parametrize(
    ("status", "holds"),
    [
        pytest.param(kubelet_says(started=None), False, id="kubelet has not seen it"),
        pytest.param(kubelet_says(("a", ""), ("plain", "")), False, id="nothing was created"),
        pytest.param(kubelet_says(("a", ""), ("plain", "x://1")), False, id="a container without devices runs"),
        pytest.param(kubelet_says(("a", "x://1"), ("plain", "")), True, id="the container was created"),
        pytest.param(kubelet_says(("plain", "")), True, id="kubelet does not speak of it"),
        pytest.param(kubelet_says(), True, id="kubelet speaks of none"),
        pytest.param(kubelet_says(("a", ""), ("plain", ""), phase="Running"), True, id="it runs"),
        pytest.param(kubelet_says(phase="Unknown", started=None), True, id="its node is silent"),
        pytest.param(None, True, id="nobody says anything"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("annotation", [None, "d0,ACME,x,0:;"])
def test_a_pod_that_never_started_keeps_nobody_away(status, holds, annotation):
    old = a_pod("old", a_container("a", gpu=1), a_container("plain"))
    cluster = charged(bound(old, status=status, **({"acme": annotation} if annotation else {})))
    assert isinstance(cluster.try_pod(a_pod("new", gpu=1)), Refused) is holds


def test_what_can_be_read_beside_a_fault_is_charged():
    cluster = charged(bound(a_pod("old", gpu=2), acme="d0,ACME,4000,0:d1,ACME,x,0:;"))
    assert cluster.usage("n1")["d0"] == Usage(1, 4000, 0)


def test_fix_a_malformed_annotation_of_one_vendor_hides_no_other_vendors_usage():
    pod = a_pod("p", a_container("a", gpu=1, npu=1))
    cluster = charged(bound(pod, acme="garbage,", bolt="b0,BOLT,1024,100:;"))
    assert cluster.usage("n1", "BOLT") == {"b0": Usage(1, 1024, 100)}


def test_a_pod_without_requests_is_never_charged_whatever_it_says():
    assert account_of(bound(a_pod("p"), acme="d0,ACME,8000,100:;"), the_vendors()) is None


@pytest.mark.parametrize("weights", ["x", "slot=" + "9" * 5000 + ",core=1,memory=1"])
def test_fix_no_annotation_makes_a_pods_devices_look_free(weights):
    """A bound pod's annotations can be edited; only its spec says that it uses devices."""
    pod = bound(a_pod("old", gpu=1))
    pod.metadata.annotations["hami.io/device-scoring-weights"] = weights
    assert texts(charged(pod).try_pod(a_pod("new", gpu=1))) == {"n1": "2/2 UnknownUsage"}


def test_a_pod_is_not_charged_for_a_vendor_that_it_does_not_ask():
    pod = bound(a_pod("p", gpu=1), acme="d0,ACME,1,0:;", bolt="b0,BOLT,8000,100:;")
    assert charged(pod).usage("n1", "BOLT") == {"b0": Usage()}


def test_a_stale_device_id_is_ignored_and_the_others_count():
    cluster = charged(bound(a_pod("p", gpu=2), acme="gone,ACME,1,0:d1,ACME,2000,0:;"))
    assert cluster.usage("n1") == {"d0": Usage(), "d1": Usage(1, 2000, 0)}


def test_problems_name_pod_node_and_annotation():
    account = account_of(bound(a_pod("p", gpu=1), acme="d0,ACME,x,0:;"), the_vendors())
    assert account.problems[0].startswith("Pod default/p on n1: annotation acme.com/allocated")


class Suspicious(ProfileVendor):
    @hookimpl
    def hami_restore(self, allocation):
        return Corrupt(("d1",), "the tag of d1 is not ours")


def test_a_corrupt_device_takes_no_new_pod_and_the_others_do():
    vendors = Vendors.of({"acme": Suspicious(ACME_YAML)})
    pod = bound(a_pod("p", gpu=1), acme="d1,ACME,1,0:;")
    account = account_of(pod, vendors)
    cluster = Cluster(a_node("n1", a_device("d0"), a_device("d1")), vendors=vendors)
    cluster.table.charge(pod.uid, account.allocation, account.unknown)
    assert texts(cluster.try_pod(a_pod("new", gpu=2))) == {
        "n1": "1/2 AllocatedCardsInsufficientRequest, 1/2 UnknownUsage"
    }
    assert "the tag of d1 is not ours" in account.problems[0]
