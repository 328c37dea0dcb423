"""Builders of the store's contents."""

from __future__ import annotations

from hami.domain.kubernetes.objects import Container, Metadata, Pod, PodSpec
from hami.domain.units import CorePercent, DeviceId, MemoryMiB, PodUid, VendorKey
from hami.slices.record import RecordedGrant, SliceRecord

VENDOR = VendorKey("NVIDIA")
ID = "4f3a90c1d2e5f60718293a4b"
OTHER = "00112233445566778899aabb"


def a_record(slice_id: str = ID, pod: str = "train", **fields: object) -> SliceRecord:
    values = {
        "slice_id": slice_id,
        "vendor": VENDOR,
        "pod": Pod(
            metadata=Metadata(
                name=pod, namespace="team", uid=PodUid(f"uid-{pod}"), annotations={"a/b": "GPU-1"}
            ),
            spec=PodSpec(containers=[Container(name="main")]),
        ),
        "container": "main",
        "generation": 1,
        "state": "preparing",
        "created_at": 1700000000.5,
        "grants": (
            RecordedGrant(
                device_id=DeviceId("GPU-1"), memory_mib=MemoryMiB(4000), cores=CorePercent(30)
            ),
        ),
    }
    return SliceRecord(**(values | fields))  # type: ignore[arg-type]
