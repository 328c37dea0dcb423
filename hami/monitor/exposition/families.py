"""What the node's metrics are called, what they say, and which labels they have.

Memory is in bytes, compute in percent of one device. The labels of a container are those that HAMi
gives it, ``zone`` included, so that any two of its metrics can be divided without ``on (...)``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Generic, Literal, TypeVar

from hami.monitor.exposition.shown import ShownDevice, Values
from hami.monitor.table import SliceDevice, SliceFigures, VendorFigures

T = TypeVar("T")

Names = tuple[str, ...]

DEVICE_LABELS = ("node", "device_index", "device_uuid", "device_type")
CONTAINER_LABELS = ("namespace", "pod", "container", "vdevice_index", "device_uuid")
SLICE_LABELS = ("namespace", "pod", "container", "vendor")
VENDOR_LABELS = ("node", "vendor")


@dataclass(frozen=True, slots=True)
class NodeFamily(Generic[T]):
    """One metric with a line per row; a ``value`` of None makes no line.

    ``legacy`` is the name that HAMi gave it before 2.9, where it had one.
    """

    name: str
    help: str
    value: Callable[[T], float | None]
    type: Literal["gauge", "counter"] = "gauge"
    legacy: str = ""


def as_they_are(values: Values, _: object) -> Values:
    return values


@dataclass(frozen=True, slots=True)
class FamilyGroup(Generic[T]):
    """Metrics of the same rows with the same labels.

    ``values`` makes the labels' values of what every row of this kind is known by.
    """

    labels: Names
    families: Sequence[NodeFamily[T]]
    values: Callable[[Values, T], Values] = as_they_are


CONTAINER_FAMILIES: tuple[NodeFamily[SliceDevice], ...] = (
    NodeFamily(
        "hami_slice_memory_charged_bytes",
        "Device memory that the library in the container has counted",
        attrgetter("charged_bytes"),
    ),
    NodeFamily(
        "hami_slice_memory_internal_bytes",
        "Device memory that the driver accounts to the container beyond what was counted",
        attrgetter("internal_bytes"),
    ),
    NodeFamily(
        "hami_slice_compute_guarantee_percent",
        "Compute that the container is guaranteed; 0 without a guarantee",
        attrgetter("guarantee"),
    ),
    NodeFamily(
        "hami_slice_compute_limit_percent",
        "The most compute that the container may have of what others leave idle",
        attrgetter("limit"),
    ),
    NodeFamily(
        "hami_slice_compute_share_percent",
        "Compute that the monitor lets the container have now",
        attrgetter("share"),
    ),
    NodeFamily(
        "hami_slice_compute_waited_seconds_total",
        "For how long the container's threads have waited for compute, as they say",
        attrgetter("waited_seconds"),
        "counter",
    ),
)

SLICE_FAMILIES: tuple[NodeFamily[SliceFigures], ...] = (
    NodeFamily(
        "hami_slice_processes",
        "Processes that use the container's devices",
        lambda held: len(held.processes),
    ),
    NodeFamily(
        "hami_slice_bypassing_processes",
        "Processes of the container that got a function of the driver which is not limited",
        lambda held: len([process for process in held.processes if process.bypass]),
    ),
    NodeFamily(
        "hami_slice_page_covered",
        "1 while a process of the container sees another file in place of its limits; else no line",
        lambda held: 1 if held.covered else None,
    ),
    NodeFamily(
        "hami_slice_unreadable",
        "1 while some of the container's files cannot be read; else no line",
        lambda held: 1 if held.problem else None,
    ),
)

SLICE_GROUPS: tuple[FamilyGroup[SliceFigures], ...] = (
    FamilyGroup(SLICE_LABELS, SLICE_FAMILIES),
    FamilyGroup(
        (*SLICE_LABELS, "source", "library", "policy"),
        (
            NodeFamily(
                "hami_slice_info",
                "Always 1; whose library holds the container to its slice, and when",
                lambda _: 1,
            ),
        ),
        lambda values, held: (*values, held.source, held.library, held.policy),
    ),
)

DEVICE_FAMILIES: tuple[NodeFamily[ShownDevice], ...] = (
    NodeFamily(
        "hami_device_memory_total_bytes",
        "Memory of a device as its driver has it",
        attrgetter("figures.memory_total_bytes"),
    ),
    NodeFamily(
        "hami_device_figures_stale",
        "1 while the figures of a device are from an earlier round of measuring",
        lambda device: int(device.figures.stale),
    ),
    NodeFamily(
        "hami_device_stranger_processes",
        "Processes on a device that belong to no slice",
        attrgetter("strangers"),
    ),
    NodeFamily(
        "hami_device_stranger_memory_bytes",
        "Device memory of processes that belong to no slice",
        attrgetter("stranger_bytes"),
    ),
)

VENDOR_FAMILIES: tuple[NodeFamily[VendorFigures], ...] = (
    NodeFamily(
        "hami_vendor_figures_stale",
        "1 while the newest figures of a vendor are late or could not be had",
        lambda vendor: int(vendor.stale),
    ),
    NodeFamily(
        "hami_vendor_measured_timestamp_seconds",
        "When a vendor was last measured",
        attrgetter("measured_at"),
    ),
)

VENDOR_GROUPS = (FamilyGroup(VENDOR_LABELS, VENDOR_FAMILIES),)
