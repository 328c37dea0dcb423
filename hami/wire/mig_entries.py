"""The annotation in which HAMi's device plugin, and ours, say which MIG instances a pod has."""

from __future__ import annotations

import msgspec

from hami.domain.kubernetes.objects import Pod

MIG_ANNOTATION = "hami.io/vgpu-mig-allocations"


class MigPlace(msgspec.Struct, frozen=True):
    """Where on its GPU an instance lies, in memory slices."""

    start: int = 0
    size: int = 0


class MigEntry(msgspec.Struct, frozen=True, rename="camel"):
    """One MIG instance; the three ids are set once the instance has been made.

    ``container_index`` counts init containers first, ``device_index`` the container's devices.
    """

    container_index: int = 0
    device_index: int = 0
    gpu_uuid: str = msgspec.field(default="", name="gpuUUID")
    profile: str = ""
    placement: MigPlace = MigPlace()
    mig_uuid: str | None = msgspec.field(default=None, name="migUUID")
    gpu_instance_id: int | None = msgspec.field(default=None, name="gpuInstanceID")
    compute_instance_id: int | None = msgspec.field(default=None, name="computeInstanceID")

    @property
    def made(self) -> bool:
        ids = (self.mig_uuid, self.gpu_instance_id, self.compute_instance_id)
        return None not in ids


def mig_entries(pod: Pod) -> list[MigEntry]:
    """The MIG instances that were made for the pod; none for an unreadable annotation."""
    text = pod.annotations.get(MIG_ANNOTATION)
    if not text:
        return []
    try:
        entries = msgspec.json.decode(text, type=list[MigEntry])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return []
    return [entry for entry in entries if entry.made]
