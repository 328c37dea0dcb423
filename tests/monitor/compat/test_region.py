"""Regions of HAMi's library, every layout in the field: recognised or refused, never misread."""

from __future__ import annotations

import ctypes
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hami.domain.units import DeviceId, PodUid, VendorKey
from hami.monitor.compat.region import Region, read_region
from hami.monitor.compat.region_files import RegionPlace
from hami.monitor.compat.region_slices import slice_of
from hami.slices.files import MalformedFile
from hami.slices.usage_region import MOST_CHARGED
from tests.monitor.compat.regions import BY_NAME, GPUS, KINDS, MIB, Kind, Live, Told, region_bytes

each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)


def read(data: bytes, size: int | None = None) -> Region | MalformedFile:
    return read_region(
        len(data) if size is None else size, lambda length, at: data[at : at + length]
    )


def readable(data: bytes) -> Region:
    region = read(data)
    assert isinstance(region, Region), region
    return region


@each_kind
def test_every_figure_is_read_in_every_layout(kind):
    told = Told(
        gpus=GPUS,
        limits=(4096, 0),
        cores=(30, 100),
        live=(
            Live(pid=7, held=((300, 20, 1000), (1, 2, 3)), percent=(40, 5)),
            Live(pid=8, held=((4, 5, 6), (7, 8, 9)), percent=(1, 2), status=2),
        ),
        recent=-1,
        switch=0,
        priority=0,
    )
    region = readable(region_bytes(kind, told))
    assert region.layout.version == kind.name
    assert [(d.uuid, d.memory_limit, d.sm_limit) for d in region.devices] == [
        (GPUS[0], 4096 * MIB, 30),
        (GPUS[1], 0, 100),
    ]
    assert [p.pid for p in region.processes] == [7, 8]
    assert [p.used for p in region.processes] == [(1320 * MIB, 6 * MIB), (15 * MIB, 24 * MIB)]
    assert [(d.context, d.module, d.buffer, d.used) for d in region.devices] == [
        (304 * MIB, 25 * MIB, 1006 * MIB, 1335 * MIB),
        (8 * MIB, 10 * MIB, 12 * MIB, 30 * MIB),
    ]
    assert [p.utilisation for p in region.processes] == (
        [(40, 5), (1, 2)] if kind.has_util else [(), ()]
    )
    assert (region.recent_kernel, region.utilization_switch, region.priority) == (-1, 0, 0)
    assert region.last_kernel == (told.last_kernel if kind.version else 0)


@each_kind
def test_the_byte_behind_the_structure_may_be_missing(kind):
    assert readable(region_bytes(kind)[:-1]).layout.version == kind.name


@each_kind
def test_a_process_that_has_exited_is_not_there(kind):
    region = readable(region_bytes(kind, Told(live=(Live(pid=7, status=0), Live(pid=8)))))
    assert [process.pid for process in region.processes] == [8]
    assert [process.slot for process in region.processes] == [1]


@pytest.mark.parametrize("name", ["1.1", "1.1 (2026-03)"])
def test_the_two_that_say_1_1_are_told_apart_by_any_live_process(name):
    live = (Live(status=0), Live(pid=9, status=2), Live(status=0))
    region = readable(region_bytes(BY_NAME[name], Told(live=live)))
    assert region.layout.version == name
    assert [process.pid for process in region.processes] == [9]


def test_without_a_live_process_nothing_can_be_misread():
    first, second = (
        readable(region_bytes(BY_NAME[name], Told(live=()))) for name in ("1.1", "1.1 (2026-03)")
    )
    assert first == second


def test_processes_of_both_in_one_file_are_refused():
    early, late = (BY_NAME[name] for name in ("1.1", "1.1 (2026-03)"))
    data = bytearray(region_bytes(early, Told(live=(Live(), Live()))))
    other = region_bytes(late, Told(live=(Live(), Live())))
    second = slice(1856 + 1960, 1856 + 2 * 1960)
    data[second] = other[second]
    assert "processes of two layouts" in str(read(bytes(data)))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        pytest.param(lambda d: d[:-2], "no known layout has 2008951 bytes", id="one byte short"),
        pytest.param(lambda d: d + b"\0", "no known layout has 2008954 bytes", id="one byte too long"),
        pytest.param(lambda d: b"", "magic", id="empty"),
        pytest.param(lambda d: bytes(4) + d[4:], "magic", id="not ready"),
        pytest.param(lambda d: d[:8] + struct.pack("<I", 3) + d[12:], "version 1.3", id="a later minor"),
        pytest.param(lambda d: d[:4] + struct.pack("<I", 2) + d[8:], "version 2.2", id="a later major"),
        pytest.param(lambda d: d[:4] + struct.pack("<II", 0, 0) + d[12:], "version 0.0", id="no version"),
    ],
)  # fmt: skip
def test_what_is_not_known_is_refused(change, problem):
    assert problem in str(read(change(region_bytes(BY_NAME["1.2"]))))


def test_a_file_that_shrinks_meanwhile_is_refused():
    data = region_bytes(BY_NAME["1.2"])
    for left in (100, 1856, 1900, 2008896):
        assert "cut short" in str(read(data[:left], size=len(data)))
    without_processes = read_region(
        len(data), lambda length, at: b"" if at == 1856 else data[at : at + length]
    )
    assert "cut short" in str(without_processes)


@pytest.mark.parametrize(
    "told",
    [
        pytest.param(Told(live=(Live(status=3),)), id="a status that there is not"),
        pytest.param(Told(live=(Live(status=-1),)), id="a negative status"),
        pytest.param(Told(live=(Live(held=((0, 0, MOST_CHARGED // MIB + 1),)),)), id="more than any device has"),
    ],
)  # fmt: skip
def test_a_process_that_makes_no_sense_is_counted(told):
    region = readable(region_bytes(BY_NAME["1.2"], told))
    assert (region.processes, region.unreadable) == ((), 1)


@pytest.mark.parametrize(
    ("extra", "processes", "devices"),
    [
        pytest.param({"proc_num": -5}, 0, 1, id="negative"),
        pytest.param({"proc_num": 2**31 - 1}, 1, 1, id="more processes than slots"),
        pytest.param({"num": 2**64 - 1}, 1, 16, id="more devices than cells"),
    ],
)
def test_a_count_out_of_range_is_cut(extra, processes, devices):
    region = readable(region_bytes(BY_NAME["1.2"], Told(extra=extra)))
    assert (len(region.processes), len(region.devices)) == (processes, devices)


@pytest.mark.parametrize("uuid", [b"GPU-\xff", b"GPU-\n", b"\x1b[31m"])
def test_a_name_that_is_no_text_is_no_name(uuid):
    data = bytearray(region_bytes(BY_NAME["1.2"]))
    data[64 : 64 + 96] = uuid.ljust(96, b"\0")
    assert readable(bytes(data)).devices[0].uuid == ""


def test_a_process_that_makes_no_sense_adds_nothing():
    live = (
        Live(),
        Live(held=((0, MOST_CHARGED // MIB + 1, 0),)),
        Live(pid=9, status=7),
        Live(pid=10, held=((1, 2, 3),)),
    )
    region = readable(region_bytes(BY_NAME["1.2"], Told(live=live)))
    assert [(one.slot, one.pid) for one in region.processes] == [(0, 7), (3, 10)]
    assert region.unreadable == 2
    assert region.devices[0].used == 1326 * MIB


def test_what_an_exited_process_left_is_no_matter():
    live = (Live(status=0, held=((0, 0, MOST_CHARGED // MIB + 1),)), Live())
    region = readable(region_bytes(BY_NAME["1.2"], Told(live=live)))
    assert (len(region.processes), region.unreadable, region.devices[0].used) == (1, 0, 1320 * MIB)


def test_garbage_for_a_utilisation_is_a_whole_device_at_most():
    region = readable(region_bytes(BY_NAME["1.2"], Told(live=(Live(percent=(2**63,)),))))
    assert region.processes[0].utilisation == (100,)


def test_at_most_the_structure_is_read():
    data = region_bytes(BY_NAME["1.2"], Told(extra={"proc_num": 2**30}))
    asked: list[int] = []

    def counted(length: int, at: int) -> bytes:
        asked.append(length)
        return data[at : at + length]

    assert isinstance(read_region(len(data), counted), Region)
    assert sum(asked) <= len(data) + 2048


@given(
    kind=st.sampled_from(KINDS),
    header=st.binary(max_size=1900),
    process=st.binary(max_size=4000),
    tail=st.binary(max_size=56),
    whole=st.booleans(),
)
def test_hostile_bytes_are_read_in_range_or_refused(kind, header, process, tail, whole):
    data = bytearray(region_bytes(kind))
    keep = 0 if whole else 12
    data[keep : keep + len(header)] = header
    start = kind.region.procs.offset
    data[start : start + len(process)] = process
    at = kind.region.proc_num.offset
    data[at : at + len(tail)] = tail
    region = read(bytes(data))
    if isinstance(region, MalformedFile):
        return
    assert len(region.devices) <= 16
    assert len(region.processes) + region.unreadable <= 1024
    for device in region.devices:
        assert 0 <= device.memory_limit <= MOST_CHARGED
        assert 0 <= device.sm_limit <= 100
    for one in region.processes:
        assert len(one.used) == len(region.devices)
        assert all(0 <= number <= MOST_CHARGED for number in one.used)
        assert all(0 <= share <= 100 for share in one.utilisation)
    shown = slice_of(PLACE, region, vendor=VendorKey("NVIDIA"), namespace="a", pod="b", known=KNOWN)
    assert {device.device_id for device in shown.devices} <= set(KNOWN.values())
    assert all(0 <= device.limit <= 100 for device in shown.devices)


# As a row of the table.

PLACE = RegionPlace(folder="uid-1_main", pod_uid=PodUid("uid-1"), container="main")
KNOWN = {uuid: DeviceId(uuid) for uuid in GPUS}


def row(kind: Kind, told: Told, known=KNOWN):
    region = readable(region_bytes(kind, told))
    return slice_of(
        PLACE, region, vendor=VendorKey("NVIDIA"), namespace="team", pod="train-0", known=known
    )


def test_a_row_adds_up_the_processes():
    shown = row(BY_NAME["1.2"], Told(live=(Live(), Live(held=((1, 2, 3),), percent=(50,)))))
    [device] = shown.devices
    assert (shown.namespace, shown.pod, shown.container, shown.source, shown.library) == (
        "team",
        "train-0",
        "main",
        "hami-core",
        "1.2",
    )
    assert (device.used_bytes, device.context_bytes, device.module_bytes, device.buffer_bytes) == (
        1326 * MIB,
        301 * MIB,
        22 * MIB,
        1003 * MIB,
    )
    assert (device.memory_limit_bytes, device.guarantee, device.limit, device.utilisation) == (
        4096 * MIB,
        30,
        30,
        90.0,
    )
    assert [process.used_bytes for process in shown.processes] == [(1320 * MIB,), (6 * MIB,)]


def test_processes_that_lie_use_a_whole_device_together_at_most():
    shown = row(BY_NAME["1.2"], Told(live=(Live(percent=(80,)), Live(percent=(90,)))))
    assert shown.devices[0].utilisation == 100.0


@pytest.mark.parametrize("cores", [0, 100])
def test_a_limit_that_is_none_books_nothing(cores):
    [device] = row(BY_NAME["1.2"], Told(cores=(cores,))).devices
    assert (device.guarantee, device.limit) == (0, 100)


def test_a_device_of_another_node_is_not_shown_and_the_others_keep_their_place():
    told = Told(
        gpus=("GPU-made-up", GPUS[1]),
        limits=(1, 2),
        cores=(0, 0),
        live=(Live(held=((1, 0, 0), (2, 0, 0)), percent=(1, 2)),),
    )
    shown = row(BY_NAME["1.2"], told)
    assert [(device.index, device.device_id, device.used_bytes) for device in shown.devices] == [
        (1, GPUS[1], 2 * MIB)
    ]
    assert shown.problem == "it names 1 devices that are not of this node"
    assert shown.processes[0].used_bytes == (2 * MIB,)


def test_a_layout_without_utilisation_says_none():
    shown = row(BY_NAME["0 (2024-01)"], Told())
    assert shown.devices[0].utilisation is None
    assert shown.processes[0].utilisation == ()


@each_kind
def test_the_structures_have_the_sizes_in_the_field(kind):
    assert ctypes.sizeof(kind.region) == kind.size
