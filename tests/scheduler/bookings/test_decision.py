"""What a Binding carries says exactly what was promised, for every kind of device."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hami_nvidia.schedule.mig_placement import MIG_PROFILES, MigPlacement, MigProfile

from hami.domain.allocations import PodAllocation
from hami.domain.devices import Device
from hami.domain.extra import NO_EXTRA
from hami.domain.kubernetes.objects import (
    Container,
    Metadata,
    Node,
    NodeStatus,
    Pod,
    PodSpec,
    Resources,
)
from hami.domain.units import DeviceId, MemoryMiB, PodUid, VendorKey
from hami.scheduler.bookings.decision import CannotBeWritten, annotations_of, label_of, signed
from hami.signing import Signer, Verified, new_private_pem
from hami.vendors.registry import load_vendors

from ..builders import Cluster, a_node, a_pod

NOW = datetime(2026, 11, 21, tzinfo=UTC)
NVIDIA = VendorKey("NVIDIA")


def a_mig_cluster() -> Cluster:
    profile = MigProfile(
        name="1g.5gb",
        memory_mib=MemoryMiB(5120),
        cores=14,
        slices=1,
        placements=tuple(MigPlacement(start=s, size=1) for s in range(7)),
    )
    device = Device(
        id=DeviceId("GPU-0"), vendor=NVIDIA, index=0, model="NVIDIA A100-SXM4-40GB", slots=7,
        memory_mib=MemoryMiB(40960), mode="mig", extra=NO_EXTRA.with_(MIG_PROFILES, (profile,)),
    )  # fmt: skip
    vendors = load_vendors()
    annotations = dict(vendors[NVIDIA].node_annotations([device]))
    node = Node(
        metadata=Metadata(name="n1", annotations=annotations),
        status=NodeStatus(allocatable={"nvidia.com/gpu": "7"}),
    )
    return Cluster(node, vendors=vendors)


def a_mig_pod(**annotations: str) -> Pod:
    limits = {"nvidia.com/gpu": "2", "nvidia.com/gpumem": "5000"}
    return Pod(
        metadata=Metadata(name="p", namespace="default", uid=PodUid("u"), annotations=annotations),
        spec=PodSpec(containers=[Container(name="c", resources=Resources(limits=limits))]),
    )


def written(cluster: Cluster, pod: Pod) -> tuple[PodAllocation, dict[str, str]]:
    allocation = cluster.reserve(pod, "n1")
    assert isinstance(allocation, PodAllocation)
    return allocation, annotations_of(pod, allocation, cluster.state.table, NOW)


def test_mig_instances_are_signed_with_profile_and_place() -> None:
    cluster, pod = a_mig_cluster(), a_mig_pod()
    allocation, annotations = written(cluster, pod)
    signer = Signer.from_pem(new_private_pem())
    text = signed(pod, allocation, annotations, cluster.state.table, signer).signature
    assert signer.verify(pod.uid, allocation, text) == Verified(1)
    bare = annotations["hami.io/vgpu-mig-allocations"]
    assert "1g.5gb" in bare


def test_without_a_key_nothing_is_signed() -> None:
    cluster, pod = a_mig_cluster(), a_mig_pod()
    allocation, annotations = written(cluster, pod)
    decision = signed(pod, allocation, annotations, cluster.state.table, Signer.none())
    assert (decision.annotations, decision.signature) == (annotations, "")


def test_what_a_tenant_wrote_into_the_schedulers_annotations_is_not_signed() -> None:
    cluster = Cluster(a_node())
    pod = a_pod(mem=3000)
    allocation, annotations = written(cluster, pod)
    annotations["acme.com/allocated"] = "n1-d0,ACME,1,0:;"
    with pytest.raises(CannotBeWritten, match="default/p carries annotations"):
        signed(pod, allocation, annotations, cluster.state.table, Signer.none())


@pytest.mark.parametrize(
    ("node", "labels"),
    [("n" * 63, {"hami.io/vgpu-node": "n" * 63}), ("n" * 64, {})],
    ids=["as long as a label may be", "a name too long for a label has none"],
)
def test_the_label(node: str, labels: dict[str, str]) -> None:
    assert label_of(node) == labels
