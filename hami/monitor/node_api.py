"""``/api/v1/node``: what runs on this node, as JSON for commands and pages.

Names are in camelCase. Memory is in bytes, compute in percent of one physical device, moments in
Unix seconds, 0 for never; null is what nobody could say. Within one ``format`` a field never goes
and never changes its meaning; new ones may come, so whoever reads skips what it does not know.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from hami.monitor.table import NodeTable, SliceDevice, SliceFigures
from hami.monitor.usage_history import HourOfUse

FORMAT = 1

LastHour = Callable[[SliceFigures, SliceDevice], HourOfUse | None]


class VendorShape(msgspec.Struct, rename="camel", gc=False, frozen=True):
    """A vendor with devices here."""

    vendor: Annotated[str, Meta(description="its key, for example `NVIDIA`")]
    measured_at: Annotated[float, Meta(description="when it was last measured")]
    stale: Annotated[bool, Meta(description="its newest figures are late or could not be had")]


class DeviceShape(msgspec.Struct, rename="camel", gc=False, frozen=True):
    """A device, whoever uses it."""

    vendor: Annotated[str, Meta(description="the vendor's key")]
    id: Annotated[str, Meta(description="unique within the vendor and the node")]
    index: Annotated[int, Meta(description="the vendor's number for it")]
    model: Annotated[str, Meta(description="its model")]
    memory_total_bytes: Annotated[int, Meta(description="what it has")]
    memory_used_bytes: Annotated[int | None, Meta(description="what is in use of that")]
    utilisation: Annotated[float | None, Meta(description="of its compute")]
    memory_utilisation: Annotated[float | None, Meta(description="of its memory controller")]
    stale: Annotated[bool, Meta(description="its figures are from an earlier tick")]


class HourShape(msgspec.Struct, rename="camel", gc=False, frozen=True):
    """What a container did in the last hour, over its restarts."""

    minutes: Annotated[int, Meta(description="how many minutes are known, 60 at most")]
    max_used_bytes: Annotated[int, Meta(description="the most memory at any tick")]
    p95_utilisation: Annotated[
        float | None, Meta(description="what the mean of a minute stays below in 95 % of them")
    ]
    waited_minutes: Annotated[
        int,
        Meta(description="in how many its threads waited for compute for half a minute, summed"),
    ] = 0


class MigShape(msgspec.Struct, rename="camel", gc=False, frozen=True):
    """What a container has of a device in MIG mode."""

    index: Annotated[int, Meta(description="its place among what the container was granted")]
    device_id: Annotated[str, Meta(description="`id` of the device")]
    uuid: Annotated[str, Meta(description="of the MIG device")]
    profile: Annotated[str, Meta(description="its profile, for example `1g.10gb`")]
    gpu_instance_id: Annotated[int, Meta(description="the driver's number for its GPU instance")]
    compute_instance_id: Annotated[int, Meta(description="and for its compute instance")]


class SliceDeviceShape(msgspec.Struct, rename="camel", gc=False):
    """A device of a slice."""

    index: Annotated[int, Meta(description="its place in the container")]
    device_id: Annotated[str, Meta(description="`id` of the device")]
    memory_limit_bytes: Annotated[int, Meta(description="0 without a limit")]
    used_bytes: Annotated[
        int, Meta(description="what the driver accounts to it, else what was charged")
    ]
    charged_bytes: Annotated[int, Meta(description="what the library in the container counted")]
    context_bytes: Annotated[int, Meta(description="of that, for contexts")]
    module_bytes: Annotated[int, Meta(description="of that, for loaded code, where it is counted")]
    buffer_bytes: Annotated[int, Meta(description="of that, what its programs allocated")]
    internal_bytes: Annotated[
        int | None, Meta(description="what the driver accounts beyond what was charged")
    ]
    guarantee: Annotated[int, Meta(description="compute that is guaranteed; 0 if none is")]
    limit: Annotated[int, Meta(description="the most compute that it may have")]
    share: Annotated[float | None, Meta(description="compute that it may have now")]
    utilisation: Annotated[float | None, Meta(description="compute that it uses")]
    waited_seconds: Annotated[
        float, Meta(description="for how long its threads waited for compute")
    ]
    last_active_at: Annotated[float, Meta(description="when it was last seen to compute")]
    last_hour: Annotated[HourShape | None, Meta(description="its last hour")] = None


class ProcessShape(msgspec.Struct, rename="camel", gc=False, frozen=True):
    """A process of a slice; lists are in the order of the slice's devices."""

    pid: Annotated[int, Meta(description="on the host; 0 if it is not known")]
    slot: Annotated[int, Meta(description="its place in the usage region; -1 if it has none")]
    used_bytes: Annotated[tuple[int, ...], Meta(description="memory, by device")]
    utilisation: Annotated[tuple[float, ...], Meta(description="compute, by device, if known")]
    bypass: Annotated[bool, Meta(description="it got a function that is not limited")]


class SliceShape(msgspec.Struct, rename="camel", gc=False, frozen=True):
    """What one container has of one vendor."""

    id: Annotated[str, Meta(description="unique on the node")]
    vendor: Annotated[str, Meta(description="the vendor's key")]
    namespace: Annotated[str, Meta(description="the pod's namespace")]
    pod: Annotated[str, Meta(description="the pod's name")]
    pod_uid: Annotated[str, Meta(description="the pod's UID")]
    container: Annotated[str, Meta(description="the container's name")]
    generation: Annotated[int, Meta(description="of its allocation")]
    created_at: Annotated[float, Meta(description="when the slice was made")]
    library: Annotated[str, Meta(description="version of the files that its library writes")]
    priority: Annotated[int, Meta(description="0 goes before 1")]
    policy: Annotated[str, Meta(description="when compute is limited: default, force, disable")]
    source: Annotated[str, Meta(description="`hami`, or `hami-core` for HAMi's own library")]
    covered: Annotated[bool, Meta(description="another file lies over its limits")]
    problem: Annotated[str, Meta(description="what of its files could not be read")]
    devices: Annotated[tuple[SliceDeviceShape, ...], Meta(description="its devices")]
    mig: Annotated[tuple[MigShape, ...], Meta(description="its MIG instances")]
    processes: Annotated[tuple[ProcessShape, ...], Meta(description="its processes")]


class StrangerShape(msgspec.Struct, rename="camel", gc=False, frozen=True):
    """A process on a device that belongs to no slice."""

    vendor: Annotated[str, Meta(description="the vendor's key")]
    device_id: Annotated[str, Meta(description="`id` of the device")]
    pid: Annotated[int, Meta(description="on the host")]
    used_bytes: Annotated[int | None, Meta(description="memory that it uses")]
    pod_uid: Annotated[str, Meta(description="the pod's UID; empty if it is in no pod")]
    namespace: Annotated[str, Meta(description="the pod's namespace, if known")]
    pod: Annotated[str, Meta(description="the pod's name, if known")]


class NodeShape(msgspec.Struct, rename="camel", gc=False, frozen=True):
    """The answer."""

    node: Annotated[str, Meta(description="the node's name")]
    taken_at: Annotated[float, Meta(description="when the figures were taken")]
    tick_seconds: Annotated[float, Meta(description="how long that took")]
    vendors: Annotated[tuple[VendorShape, ...], Meta(description="vendors with devices here")]
    devices: Annotated[tuple[DeviceShape, ...], Meta(description="the node's devices")]
    slices: Annotated[tuple[SliceShape, ...], Meta(description="what containers have of them")]
    strangers: Annotated[
        tuple[StrangerShape, ...], Meta(description="processes that belong to no slice")
    ]
    format: Annotated[Literal[1], Meta(description="of this answer")] = 1


SHAPES = (
    NodeShape, VendorShape, DeviceShape, SliceShape, SliceDeviceShape, MigShape, HourShape,
    ProcessShape, StrangerShape,
)  # fmt: skip

NODE_DECODER = msgspec.json.Decoder(NodeShape)
"""Made here, before any thread: msgspec learns a type at its first use, and crashes where two
threads do that at once."""


def node_json(table: NodeTable, last_hour: LastHour) -> bytes:
    """The table as the answer; ``last_hour`` says what is known of a device of a slice."""
    shape = msgspec.convert(table, NodeShape, from_attributes=True)
    for figures, shown in zip(table.slices, shape.slices, strict=True):
        for device, own in zip(figures.devices, shown.devices, strict=True):
            if hour := last_hour(figures, device):
                own.last_hour = msgspec.convert(hour, HourShape, from_attributes=True)
    return msgspec.json.encode(shape)
