"""MIG instances of containers, which HAMi's device plugin and ours write into the pod's annotation.

The annotation gets the ids of an instance while its container starts, so it is read from the pod as
the API server has it, and not from the slice's record.
"""

from __future__ import annotations

from msgspec.structs import replace

from hami.domain.kubernetes.objects import Pod
from hami.domain.units import DeviceId
from hami.monitor.table import MigIdentity, SliceFigures
from hami.wire.mig_entries import mig_entries


def with_mig(figures: SliceFigures, pod: Pod) -> SliceFigures:
    """``figures`` with the instances that its pod names, on devices that the slice has."""
    entries = mig_entries(pod)
    if not entries:
        return figures
    names = [container.name for container, _ in pod.each_container()]
    held = {device.device_id for device in figures.devices}
    found = tuple(
        MigIdentity(
            index=entry.device_index,
            device_id=DeviceId(entry.gpu_uuid),
            uuid=entry.mig_uuid or "",
            profile=entry.profile,
            gpu_instance_id=entry.gpu_instance_id or 0,
            compute_instance_id=entry.compute_instance_id or 0,
        )
        for entry in entries
        if entry.gpu_uuid in held
        and 0 <= entry.container_index < len(names)
        and names[entry.container_index] == figures.container
    )
    return replace(figures, mig=found)
