"""What a scrape of a node shows: HAMi's names and labels, ours beside them, each series once."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from hami.monitor.exposition.node_text import PIECE, NodeText
from hami.monitor.table import MigIdentity, NodeTable, VendorFigures
from tests.monitor.tables import (
    GIB,
    MIB,
    NOW,
    a_device,
    a_node,
    a_process,
    a_slice,
    a_stranger,
    held,
)

Labels = frozenset[tuple[str, str]]


@dataclass(frozen=True)
class Line:
    name: str
    labels: Labels
    value: float


def read(text: bytes) -> list[Line]:
    lines = [
        Line(sample.name, frozenset(sample.labels.items()), sample.value)
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    ]
    assert [s for s, n in Counter((s.name, s.labels) for s in lines).items() if n > 1] == []
    names = [line.split()[2] for line in text.decode().split("\n") if line.startswith("# TYPE")]
    assert sorted(names) == sorted(set(names))
    return lines


def whole(text: NodeText, table: NodeTable) -> bytes:
    return b"".join(text.pieces(table))


def scraped(table: NodeTable, *, legacy: bool = False) -> list[Line]:
    text = NodeText(legacy=legacy)
    first, second = whole(text, table), whole(text, table)
    assert first == second
    return read(first)


def shown(lines: list[Line], name: str) -> dict[Labels, float]:
    """Values by labels, without the zone that all have."""
    found = {}
    for line in lines:
        if line.name == name:
            assert ("zone", "vGPU") in line.labels
            found[line.labels - {("zone", "vGPU")}] = line.value
    return found


def only(lines: list[Line], name: str) -> float:
    [value] = shown(lines, name).values()
    return value


def labels(**values: str) -> Labels:
    return frozenset(values.items())


DEVICE = labels(node="n1", device_index="0", device_uuid="GPU-0", device_type="NVIDIA-A100")
NO_NODE = labels(device_index="0", device_uuid="GPU-0", device_type="NVIDIA-A100")
CONTAINER = labels(
    namespace="team", pod="train-0", container="main", vdevice_index="0", device_uuid="GPU-0"
)
SLICE = labels(namespace="team", pod="train-0", container="main", vendor="NVIDIA")
VENDOR = labels(node="n1", vendor="NVIDIA")
FORMER_DEVICE = labels(nodeid="n1", deviceidx="0", deviceuuid="GPU-0", devicetype="NVIDIA-A100")
FORMER_CONTAINER = labels(
    podnamespace="team", podname="train-0", ctrname="main", vdeviceid="0", deviceuuid="GPU-0"
)
MIG = MigIdentity(
    index=0,
    device_id="GPU-0",
    uuid="MIG-1",
    profile="1g.10gb",
    gpu_instance_id=7,
    compute_instance_id=0,
)

AT_WORK = a_node(
    a_slice(
        "train-0",
        held(
            used_bytes=3 * GIB, charged_bytes=2 * GIB, context_bytes=300 * MIB, module_bytes=20 * MIB,
            buffer_bytes=1500 * MIB, internal_bytes=1 * GIB, guarantee=30, limit=80, share=45.5,
            utilisation=44.25, waited_seconds=12.5, last_active_at=NOW - 2,
        ),
        processes=(a_process(1), a_process(2, bypass=True)),
        policy="force", mig=(MIG,),
    ),
    strangers=(a_stranger(pid=1, used_bytes=GIB), a_stranger(pid=2)),
)  # fmt: skip

HAMI = [
    ("hami_host_gpu_memory_used_bytes", DEVICE, 10 * GIB),
    ("hami_host_gpu_utilization_ratio", DEVICE, 60),
    ("hami_host_gpu_memory_controller_utilization_ratio", NO_NODE, 30),
    ("hami_vgpu_memory_used_bytes", CONTAINER, 3 * GIB),
    ("hami_vgpu_memory_limit_bytes", CONTAINER, 4 * GIB),
    ("hami_container_device_memory_bytes", CONTAINER, 3 * GIB),
    ("hami_container_device_utilization_ratio", CONTAINER, 44.25),
    ("hami_container_last_kernel_elapsed_seconds", CONTAINER, 2),
    ("hami_vgpu_memory_context_bytes", CONTAINER, 300 * MIB + GIB),
    ("hami_vgpu_memory_module_bytes", CONTAINER, 20 * MIB),
    ("hami_vgpu_memory_buffer_bytes", CONTAINER, 1500 * MIB),
    ("hami_mig_device_info", CONTAINER | labels(mig_uuid="MIG-1", profile="1g.10gb", gpu_instance_id="7", compute_instance_id="0"), 1),
]  # fmt: skip

OURS = [
    ("hami_device_memory_total_bytes", DEVICE, 80 * GIB),
    ("hami_device_figures_stale", DEVICE, 0),
    ("hami_device_stranger_processes", DEVICE, 2),
    ("hami_device_stranger_memory_bytes", DEVICE, GIB),
    ("hami_slice_memory_charged_bytes", CONTAINER, 2 * GIB),
    ("hami_slice_memory_internal_bytes", CONTAINER, GIB),
    ("hami_slice_compute_guarantee_percent", CONTAINER, 30),
    ("hami_slice_compute_limit_percent", CONTAINER, 80),
    ("hami_slice_compute_share_percent", CONTAINER, 45.5),
    ("hami_slice_compute_waited_seconds_total", CONTAINER, 12.5),
    ("hami_slice_processes", SLICE, 2),
    ("hami_slice_bypassing_processes", SLICE, 1),
    ("hami_slice_info", SLICE | labels(source="hami", library="1", policy="force"), 1),
    ("hami_vendor_figures_stale", VENDOR, 0),
    ("hami_vendor_measured_timestamp_seconds", VENDOR, NOW),
]  # fmt: skip

PARTS = labels(
    context=str(300 * MIB + GIB), module=str(20 * MIB), data=str(1500 * MIB), offset=str(228 * MIB)
)
LEGACY = [
    ("HostGPUMemoryUsage", FORMER_DEVICE, 10 * GIB),
    ("HostCoreUtilization", FORMER_DEVICE, 60),
    ("vGPU_device_memory_usage_in_bytes", FORMER_CONTAINER, 3 * GIB),
    ("vGPU_device_memory_limit_in_bytes", FORMER_CONTAINER, 4 * GIB),
    ("Device_utilization_desc_of_container", FORMER_CONTAINER, 44.25),
    ("Device_last_kernel_of_container", FORMER_CONTAINER, 2),
    ("Device_memory_desc_of_container", FORMER_CONTAINER | PARTS, 3 * GIB),
    ("MigInfo", FORMER_CONTAINER | labels(instanceid="7"), 1),
]


@pytest.mark.parametrize(("name", "of", "value"), HAMI)
def test_hamis_names_and_labels(name, of, value):
    assert shown(scraped(AT_WORK), name) == {of: value}


@pytest.mark.parametrize(("name", "of", "value"), OURS)
def test_ours_beside_them(name, of, value):
    assert shown(scraped(AT_WORK), name) == {of: value}


@pytest.mark.parametrize(("name", "of", "value"), LEGACY)
def test_the_earlier_names_are_there_when_asked_for(name, of, value):
    assert shown(scraped(AT_WORK, legacy=True), name) == {of: value}
    assert shown(scraped(AT_WORK), name) == {}


def test_nothing_else_is_shown():
    names = {line.name for line in scraped(AT_WORK, legacy=True)}
    assert names == {name for name, _, _ in (*HAMI, *OURS, *LEGACY)}


def test_a_container_that_uses_nothing_is_there():
    idle = scraped(a_node(a_slice()))
    zero = {line.name for line in idle if line.value == 0 and ("pod", "train-0") in line.labels}
    assert zero == {
        "hami_vgpu_memory_used_bytes", "hami_container_device_memory_bytes", "hami_vgpu_memory_context_bytes",
        "hami_vgpu_memory_module_bytes", "hami_vgpu_memory_buffer_bytes", "hami_slice_memory_charged_bytes",
        "hami_slice_compute_guarantee_percent", "hami_slice_compute_waited_seconds_total",
        "hami_slice_processes", "hami_slice_bypassing_processes",
    }  # fmt: skip


def test_what_nobody_knows_has_no_line():
    device = a_device(memory_used_bytes=None, utilisation=None, memory_utilisation=None)
    lines = scraped(a_node(a_slice(), devices=(device,)))
    unknown = {
        "hami_host_gpu_memory_used_bytes", "hami_host_gpu_utilization_ratio",
        "hami_host_gpu_memory_controller_utilization_ratio", "hami_container_device_utilization_ratio",
        "hami_container_last_kernel_elapsed_seconds", "hami_slice_memory_internal_bytes",
        "hami_slice_compute_share_percent", "hami_mig_device_info",
    }  # fmt: skip
    assert unknown & {line.name for line in lines} == set()


def test_utilisation_is_there_though_memory_is_not_known():
    lines = scraped(a_node(devices=(a_device(memory_used_bytes=None),)))
    assert only(lines, "hami_host_gpu_utilization_ratio") == 60


def test_an_empty_node_is_valid_text():
    assert scraped(a_node(devices=(), vendors=())) == []


def test_old_figures_say_so():
    old = a_node(
        devices=(a_device(stale=True),), vendors=(VendorFigures(vendor="NVIDIA", stale=True),)
    )
    lines = scraped(old)
    assert (only(lines, "hami_device_figures_stale"), only(lines, "hami_vendor_figures_stale")) == (
        1,
        1,
    )
    assert only(lines, "hami_host_gpu_memory_used_bytes") == 10 * GIB


def test_two_instances_of_one_device_are_two_series():
    mig = (MIG, replace(MIG, index=1, uuid="MIG-2", gpu_instance_id=8))
    lines = scraped(a_node(a_slice(mig=mig)), legacy=True)
    for name, label in (("hami_mig_device_info", "gpu_instance_id"), ("MigInfo", "instanceid")):
        assert sorted(dict(labels)[label] for labels in shown(lines, name)) == ["7", "8"]


def test_an_instance_that_is_named_twice_is_one_series():
    mig = (MIG, MIG, replace(MIG, uuid="MIG-2"))
    lines = scraped(a_node(a_slice(mig=mig)), legacy=True)
    assert [len(shown(lines, name)) for name in ("hami_mig_device_info", "MigInfo")] == [2, 1]


def test_what_is_wrong_with_a_slice_shows_while_it_is():
    wrong = {"hami_slice_page_covered", "hami_slice_unreadable"}
    assert wrong & {line.name for line in scraped(AT_WORK)} == set()
    lines = scraped(a_node(a_slice(covered=True, problem="its usage region is short")))
    assert (only(lines, "hami_slice_page_covered"), only(lines, "hami_slice_unreadable")) == (1, 1)


def test_a_clock_that_went_back_shows_no_time_before_now():
    lines = scraped(a_node(a_slice("train-0", held(last_active_at=NOW + 5))))
    assert only(lines, "hami_container_last_kernel_elapsed_seconds") == 0


def test_a_container_that_went_is_gone():
    text = NodeText(legacy=True)
    whole(text, a_node(a_slice("train-0"), a_slice("train-1")))
    after = whole(text, a_node(a_slice("train-1")))
    assert b"train-0" not in after
    assert b"train-1" in after
    assert not any("train-0" in values for kept in text._kept.values() for values in kept)


def test_a_container_shows_once_its_pod_is_known():
    text = NodeText()
    assert b"vdevice_index" not in whole(text, a_node(a_slice("", id="one"), a_slice("", id="two")))
    assert b'pod="train-0"' in whole(text, a_node(a_slice("train-0", id="one")))


def test_more_rows_than_a_piece_has():
    slices = [a_slice(f"pod-{i}", held(used_bytes=i)) for i in range(PIECE + 1)]
    used = shown(scraped(a_node(*slices)), "hami_vgpu_memory_used_bytes")
    assert sorted(used.values()) == list(range(PIECE + 1))


# A container that was started anew within one scrape.

OLD = a_slice(
    "train-0",
    held(used_bytes=5, charged_bytes=4, internal_bytes=1, utilisation=2.0, waited_seconds=90.0, memory_limit_bytes=7, guarantee=10, last_active_at=NOW - 1),
    id="old", created_at=NOW - 100, processes=(a_process(1),), generation=9,
)  # fmt: skip
NEW = a_slice(
    "train-0",
    held(used_bytes=50, charged_bytes=40, internal_bytes=2, waited_seconds=1.0, memory_limit_bytes=8, guarantee=20),
    id="new", created_at=NOW - 1, processes=(a_process(2),), generation=1,
)  # fmt: skip


@pytest.mark.parametrize("slices", [(OLD, NEW), (NEW, OLD)], ids=["old first", "new first"])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("hami_vgpu_memory_used_bytes", 55),
        ("hami_slice_memory_charged_bytes", 44),
        ("hami_slice_memory_internal_bytes", 3),
        ("hami_container_device_utilization_ratio", 2),
        ("hami_container_last_kernel_elapsed_seconds", 1),
        ("hami_slice_processes", 2),
        ("hami_vgpu_memory_limit_bytes", 8),
        ("hami_slice_compute_guarantee_percent", 20),
        ("hami_slice_compute_waited_seconds_total", 1),
    ],
)
def test_the_newest_slice_is_in_force_and_memory_adds_up(slices, name, value):
    assert only(scraped(a_node(*slices)), name) == value


def test_a_device_that_only_the_old_slice_has_is_shown_while_it_is_held():
    old = replace(OLD, devices=(held(1, used_bytes=6),))
    used = shown(scraped(a_node(old, NEW)), "hami_vgpu_memory_used_bytes")
    assert sorted(used.values()) == [6, 50]


def test_a_successor_of_the_same_name_is_one_series():
    first, second = (replace(OLD, id=uid, pod_uid=uid) for uid in ("uid-1", "uid-2"))
    assert only(scraped(a_node(first, second)), "hami_vgpu_memory_used_bytes") == 10


def test_three_at_once():
    third = replace(OLD, id="older", created_at=NOW - 200)
    assert only(scraped(a_node(OLD, third, NEW)), "hami_vgpu_memory_used_bytes") == 60


def test_two_vendors_with_one_id_make_one_series():
    ours, other = a_device(), a_device(vendor="ACME", memory_used_bytes=1)
    table = a_node(
        a_slice(),
        a_slice(vendor="ACME"),
        devices=(ours, other),
        strangers=(a_stranger(vendor="ACME"),),
    )
    lines = scraped(table, legacy=True)
    assert only(lines, "hami_host_gpu_memory_used_bytes") == 10 * GIB
    assert only(lines, "hami_device_stranger_processes") == 0
    assert len(shown(lines, "hami_slice_processes")) == 2


# Labels.

names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)


@given(names, names, names, names)
def test_any_name_is_a_label(node, pod, device, model):
    table = a_node(
        a_slice(pod, held(device_id=device)), node=node, devices=(a_device(id=device, model=model),)
    )
    lines = scraped(table, legacy=True)
    [container] = shown(lines, "hami_vgpu_memory_used_bytes")
    assert {("pod", pod), ("device_uuid", device)} <= container
    [of] = shown(lines, "hami_host_gpu_memory_used_bytes")
    assert {("node", node), ("device_type", model)} <= of


def test_a_name_that_cannot_be_encoded_does_not_stop_a_scrape():
    assert b'pod="a?b"' in whole(NodeText(), a_node(a_slice("a\ud800b")))
