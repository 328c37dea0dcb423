"""One tick after the other on a node: files that come, go and lie; figures that are late."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from hami.domain.kubernetes.objects import Container, Metadata, Pod, PodSpec
from hami.domain.measurements import MeasuredDevice
from hami.monitor.files.slices_on_disk import SlicesOnDisk
from hami.monitor.measuring.vendor_measuring import boot_time
from hami.monitor.tick.node_round import STALE_SECONDS
from hami.monitor.tick.pod_warnings import BYPASS, COVERED, STRANGER, PodWarnings
from hami.slices.c_layout import SLOT_BYPASS, LimitsPageC
from hami.slices.limits_page import DeviceLimit
from hami.slices.usage_region import REGION_SIZE
from hami.wire.mig_entries import MIG_ANNOTATION

from .rounds import GPUS, Ticks, figures, used
from .world import GIB, NVIDIA, NodeSlices

MIB = 1 << 20
OTHERS, HIGHER = 1, 2


@pytest.fixture
def ticks(tmp_path: Path) -> Iterator[Ticks]:
    made = Ticks(tmp_path)
    yield made
    made.close()


def test_a_slot_is_told_the_bytes_of_its_own_process(ticks):
    one = ticks.slices.add(GPUS[0], GPUS[1])
    space = ticks.process(one, 100, inner_pid=7, start_time=50)
    one.charge(3, 7, 100 * MIB, start_time=50, pid_namespace=space, generation=4)
    one.charge(4, 7, start_time=49, pid_namespace=space, generation=9)
    one.charge(5, 7, start_time=50, pid_namespace=space + 1, generation=2)
    table = ticks.tick(used(100, 150 * MIB, 12.5), used(100, MIB, 1.0, GPUS[1]))
    seen = one.observed
    assert [seen.slot_generation[slot] for slot in (3, 4, 5)] == [4, 0, 0]
    assert (seen.bytes[0][3], seen.bytes[1][3]) == (150 * MIB, MIB)
    assert [device.utilisation for device in seen.devices[:3]] == [1250, 100, 0]
    first, second = figures(table, one).devices
    assert (first.charged_bytes, first.internal_bytes) == (100 * MIB, 50 * MIB)
    assert second.internal_bytes == MIB
    assert [p.slot for p in figures(table, one).processes if p.pid] == [3]


def test_what_is_charged_is_contexts_and_the_rest(ticks):
    one = ticks.slices.add(GPUS[0])
    limit = DeviceLimit(uuid=GPUS[0], memory_bytes=GIB, cores=0, context_reserve_bytes=300 * MIB)
    ticks.slices.limit(one, [limit])
    one.charge(0, 7, 400 * MIB)
    one.charge(1, 8, 300 * MIB)
    one.charge(2, 9, 0)
    [device] = figures(ticks.tick(), one).devices
    assert (device.context_bytes, device.buffer_bytes) == (600 * MIB, 100 * MIB)


def test_a_container_without_a_reserve_has_allocations_alone(ticks):
    one = ticks.slices.add(GPUS[0])
    one.charge(0, 7, 400 * MIB)
    [device] = figures(ticks.tick(), one).devices
    assert (device.context_bytes, device.buffer_bytes) == (0, 400 * MIB)


def test_what_an_ended_process_left_in_its_slot_is_not_used(ticks):
    """It stays there until another process of the container takes the slot."""
    one = ticks.slices.add(GPUS[0])
    one.charge(0, 7, GIB, flags=SLOT_BYPASS)
    one.charge(1, 8, 2 * GIB)
    one.lock(0, fcntl.F_UNLCK)
    found = figures(ticks.tick(), one)
    [device] = found.devices
    assert (device.used_bytes, device.charged_bytes) == (2 * GIB, 2 * GIB)
    assert [(process.slot, process.bypass) for process in found.processes] == [(1, False)]


def test_a_program_that_closed_every_descriptor_and_runs_is_counted(ticks):
    one = ticks.slices.add(GPUS[0])
    space = ticks.process(one, 100, inner_pid=7)
    one.charge(0, 7, GIB, locked=False, start_time=1, pid_namespace=space)
    [device] = figures(ticks.tick(used(100, 2 * GIB)), one).devices
    assert device.charged_bytes == GIB


@pytest.mark.parametrize(
    ("page", "limit"),
    [
        ({"cores": 30}, 100),
        ({"cores": 30, "cores_limit": 80}, 80),
        ({"cores": 30, "cores_limit": 80, "policy": "force"}, 30),
        ({"cores": 30, "cores_limit": 80, "policy": "disable"}, 100),
        ({"cores_limit": 80}, 80),
        ({}, 100),
    ],
)
def test_the_limit_is_what_the_policy_makes_of_the_page(ticks, page, limit):
    one = ticks.slices.add(GPUS[0], **page)
    assert figures(ticks.tick(), one).devices[0].limit == limit


def test_a_mig_instance_is_its_pods(ticks):
    one = ticks.slices.add(GPUS[0])
    made = [{"gpuUUID": GPUS[0], "migUUID": "MIG-1", "gpuInstanceID": 7, "computeInstanceID": 0}]
    ticks.pods[one.pod_uid] = Pod(
        metadata=Metadata(name="p", annotations={MIG_ANNOTATION: json.dumps(made)}),
        spec=PodSpec(containers=[Container(name="main")]),
    )
    assert [own.uuid for own in figures(ticks.tick(), one).mig] == ["MIG-1"]
    del ticks.pods[one.pod_uid]
    assert figures(ticks.tick(), one).mig == ()


def test_one_whose_memory_nobody_knows_is_told_nothing(ticks):
    """As under MPS: 0 says that there is no figure."""
    one = ticks.slices.add(GPUS[0])
    space = ticks.process(one, 100, inner_pid=7)
    one.charge(0, 7, 100 * MIB, start_time=1, pid_namespace=space)
    table = ticks.tick(used(100, None))
    assert (one.observed.slot_generation[0], one.observed.bytes[0][0]) == (1, 0)
    [device] = figures(table, one).devices
    assert (device.used_bytes, device.internal_bytes) == (100 * MIB, None)


def test_a_slice_is_told_of_others_on_its_device(ticks):
    high, low, away = (
        ticks.slices.add(GPUS[0], priority=0),
        ticks.slices.add(GPUS[0], priority=1),
        ticks.slices.add(GPUS[1], priority=1),
    )
    for pid, held in ((100, high), (101, low), (102, away)):
        ticks.process(held, pid)
    ticks.tick(used(100, GIB, 60.0), used(101, GIB, 40.0), used(102, GIB, 9.0, GPUS[1]))
    assert high.observed.devices[0].contention == OTHERS
    assert low.observed.devices[0].contention == OTHERS | HIGHER
    assert away.observed.devices[0].contention == 0


def test_a_share_is_handed_out(ticks):
    one = ticks.slices.add(GPUS[0], cores=30, cores_limit=80)
    other = ticks.slices.add(GPUS[0], cores=70)
    for pid, held in ((100, one), (101, other)):
        ticks.process(held, pid)
    for charged in range(6):
        one.bucket(charged=charged * 10**9, waited=charged * 10**9)
        table = ticks.tick(used(100, GIB, 30.0))
    assert 3000 < one.observed.share[0] <= 8000
    [device] = figures(table, one).devices
    assert device.share == one.observed.share[0] / 100
    assert (device.guarantee, device.limit) == (30, 80)


@pytest.mark.parametrize("late", [0, 1])
def test_a_next_monitor_begins_with_what_was_handed_out(ticks, tmp_path, late):
    """However many ticks go by before the vendor answers."""
    one = ticks.slices.add(GPUS[0], cores=30)
    ticks.slices.add(GPUS[0], cores=70)
    ticks.process(one, 100)
    for charged in range(6):
        one.bucket(charged=charged * 10**9, waited=charged * 10**9)
        ticks.tick(used(100, GIB, 30.0))
    lent = one.observed.share[0]
    assert lent > 3000
    after = Ticks(tmp_path)
    try:
        for _ in range(late):
            after.held()
        after.tick(used(100, GIB, 30.0))
        assert one.observed.share[0] == lent
    finally:
        after.round.close()


def test_a_vendor_that_does_not_answer_is_held_for_a_while(ticks):
    one = ticks.slices.add(GPUS[0])
    ticks.process(one, 100)
    ticks.tick(used(100, GIB, 30.0))
    for beats in (2, 3):
        table = ticks.held()
        assert one.observed.heartbeat == beats
        assert figures(table, one).devices[0].utilisation == 30.0
        assert [device.stale for device in table.devices] == [True] * 4
        assert table.vendors[0].stale
    ticks.tick(used(100, GIB, 30.0), asked_at=boot_time() - STALE_SECONDS - 1)
    assert one.observed.heartbeat == 3
    table = ticks.tick(used(100, GIB, 30.0))
    assert one.observed.heartbeat == 4
    assert not table.vendors[0].stale


def test_before_the_first_answer_nobody_is_told_anything(ticks):
    one = ticks.slices.add(GPUS[0])
    ticks.held()
    assert one.observed.heartbeat == 0


def test_what_passed_before_the_first_answer_was_not_idle(ticks):
    """A vendor's devices are found while the first ticks run."""
    one = ticks.slices.add(GPUS[0])
    ticks.process(one, 100)
    ticks.held()
    ticks.tick(used(100, GIB, 30.0))
    assert one.observed.devices[0].utilisation == 3000


def test_a_device_that_fell_off_the_bus_silences_its_slices_alone(ticks):
    one, other = ticks.slices.add(GPUS[0]), ticks.slices.add(GPUS[1])
    left = [MeasuredDevice(id=GPUS[1], utilisation=3.0)]
    table = ticks.tick(devices=left)
    assert (one.observed.heartbeat, other.observed.heartbeat) == (0, 1)
    assert [d.id for d in table.devices if not d.stale] == [GPUS[1]]


def test_slices_come_and_go(ticks):
    assert ticks.tick().slices == ()
    one = ticks.slices.add(GPUS[0])
    assert [s.id for s in ticks.tick().slices] == [one.id]
    other = ticks.slices.add(GPUS[0])
    ticks.slices.store().remove(one.id)
    assert [s.id for s in ticks.tick().slices] == [other.id]
    assert other.observed.heartbeat == 1
    ticks.slices.store().remove(other.id)
    assert ticks.tick().slices == ()
    assert ticks.problems == []


def test_limits_that_changed_in_place_count_at_once(ticks):
    one = ticks.slices.add(GPUS[0], memory=GIB)
    ticks.tick()
    ticks.slices.limit(one, [DeviceLimit(uuid=GPUS[0], memory_bytes=2 * GIB, cores=10)])
    [device] = figures(ticks.tick(), one).devices
    assert (device.memory_limit_bytes, device.guarantee) == (2 * GIB, 10)


def test_a_share_says_for_which_limits_it_is(ticks):
    one = ticks.slices.add(GPUS[0], cores=20)
    ticks.tick()
    assert one.observed.share_revision == 1
    ticks.slices.limit(one, [DeviceLimit(uuid=GPUS[0], memory_bytes=GIB, cores=60)])
    ticks.tick()
    assert one.observed.share_revision == 2


def test_limits_that_change_while_they_are_read_are_of_one_revision(ticks, monkeypatch):
    one = ticks.slices.add(GPUS[0], cores=20)
    ticks.tick()
    ticks.slices.limit(one, [DeviceLimit(uuid=GPUS[0], memory_bytes=GIB, cores=40)])
    pread = os.pread

    def overtaken(fd: int, length: int, position: int) -> bytes:
        found = pread(fd, length, position)
        if length == LimitsPageC.observed.offset:
            monkeypatch.setattr(os, "pread", pread)
            ticks.slices.limit(one, [DeviceLimit(uuid=GPUS[0], memory_bytes=GIB, cores=60)])
        return found

    monkeypatch.setattr(os, "pread", overtaken)
    [device] = figures(ticks.tick(), one).devices
    assert (device.guarantee, one.observed.share_revision) == (60, 3)


def test_a_page_that_was_replaced_is_told_beside_the_one_that_runs(ticks):
    """What runs has the former file mapped until its next start."""
    one = ticks.slices.add(GPUS[0])
    ticks.tick()
    mapped = os.open(one.limits, os.O_RDONLY)
    try:
        former = one.limits.read_bytes()
        with one.limits.open("r+b") as file:
            file.write(b"\0" * 64)
        ticks.slices.limit(one, [DeviceLimit(uuid=GPUS[0], memory_bytes=2 * GIB, cores=0)])
        assert one.limits.stat().st_ino != os.fstat(mapped).st_ino
        for _ in range(3):
            ticks.tick()
        assert one.observed.heartbeat == 3
        now = os.pread(mapped, 1 << 20, 0)
        assert now[4096:4104] != former[4096:4104]
    finally:
        os.close(mapped)


@pytest.mark.parametrize("name", ["meta.json", "limits", "usage"])
def test_a_slice_that_cannot_be_read_stops_no_other(ticks, name):
    one, other = ticks.slices.add(GPUS[0]), ticks.slices.add(GPUS[0])
    (one.path / name).unlink()
    (one.path / name).mkdir()
    for _ in range(3):
        table = ticks.tick()
    assert other.observed.heartbeat == 3
    assert figures(table, other).problem == ""
    [problem] = ticks.problems
    assert one.id in problem


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, REGION_SIZE - 1), st.binary(min_size=1, max_size=64)), max_size=30
    ),
    st.sampled_from([None, 0, 100, REGION_SIZE, 1 << 40]),
)
def test_nothing_that_a_tenant_writes_changes_what_others_are_told(tmp_path_factory, lies, length):
    folder = tmp_path_factory.mktemp("node")
    ticks = Ticks(folder)
    try:
        liar, honest = ticks.slices.add(GPUS[0]), ticks.slices.add(GPUS[0])
        space = ticks.process(honest, 100, inner_pid=7)
        ticks.process(liar, 101, inner_pid=7)
        honest.charge(0, 7, GIB, start_time=1, pid_namespace=space)
        ticks.tick(used(100, GIB, 25.0), used(101, GIB, 25.0))
        expected = honest.observed
        with (liar.path / "usage").open("r+b") as file:
            for position, garbage in lies:
                file.seek(position)
                file.write(garbage)
        if length is not None:
            os.truncate(liar.path / "usage", length)
        table = ticks.tick(used(100, GIB, 25.0), used(101, GIB, 25.0))
        found = honest.observed
        assert found.heartbeat == expected.heartbeat + 1
        assert liar.observed.heartbeat == 2
        assert bytes(found.devices) == bytes(expected.devices)
        assert bytes(found.bytes) == bytes(expected.bytes)
        assert figures(table, honest).devices[0].used_bytes == GIB
        assert figures(table, honest).problem == ""
    finally:
        ticks.close()


def test_a_next_monitor_goes_on(ticks, tmp_path):
    one = ticks.slices.add(GPUS[0])
    ticks.process(one, 100)
    ticks.tick(used(100, GIB, 30.0))
    other = Ticks.__new__(Ticks)
    other.__init__(tmp_path)  # type: ignore[misc]
    try:
        other.tick(used(100, GIB, 30.0))
        assert one.observed.heartbeat == 2
    finally:
        other.round.close()


def test_a_slice_that_cannot_be_read_is_tried_again_though_the_clock_was_set_back(tmp_path):
    clock = time.time_ns() + 10**18
    slices, problems = NodeSlices(tmp_path), []
    disk = SlicesOnDisk(
        tmp_path, {NVIDIA: lambda record, path: record}, problems.append, lambda: clock
    )
    try:
        one = slices.add(GPUS[0])
        (one.path / "usage").rename(tmp_path / "away")
        (one.path / "usage").symlink_to(tmp_path / "region")
        disk.look()
        assert [one.id in problem for problem in problems] == [True]
        clock = time.time_ns() + 10**17
        (tmp_path / "away").rename(tmp_path / "region")
        disk.look()
        [held] = disk.of(NVIDIA)
        held.read(bytearray(REGION_SIZE))
        assert held.problem == ""
    finally:
        disk.close()
        slices.close()


# What pods are told.


class Told(list):
    def __call__(self, pod, reason, text):
        self.append((pod, reason, text))


def warnings() -> tuple[Told, PodWarnings]:
    told = Told()
    return told, PodWarnings(lambda uid: uid, told)  # type: ignore[arg-type,return-value]


def test_a_bypass_is_told_once_and_shown(ticks):
    one = ticks.slices.add(GPUS[0])
    one.charge(0, 7, GIB, flags=SLOT_BYPASS)
    told, tell = warnings()
    for _ in range(3):
        table = ticks.tick()
        tell(table)
    assert [(pod, reason) for pod, reason, _ in told] == [(one.pod_uid, BYPASS)]
    assert [process.bypass for process in figures(table, one).processes] == [True]


def test_a_page_that_was_mounted_over_is_told_once_and_shown(ticks):
    one = ticks.slices.add(GPUS[0])
    ticks.process(one, 100)
    assert not figures(ticks.tick(used(100, GIB)), one).covered
    seen = ticks.proc.root / "100" / "root/run/hami/nvidia/limits"
    seen.unlink()
    seen.write_bytes(one.limits.read_bytes())
    told, tell = warnings()
    ticks.look_at_mounts_again()
    for _ in range(2):
        table = ticks.tick(used(100, GIB))
        tell(table)
    assert figures(table, one).covered
    assert figures(table, one).devices[0].used_bytes == GIB
    assert [(pod, reason) for pod, reason, _ in told] == [(one.pod_uid, COVERED)]


def test_a_process_of_a_pod_without_a_slice_is_told_once(ticks):
    one = ticks.slices.add(GPUS[0])
    ticks.process(one, 100)
    told, tell = warnings()
    for _ in range(4):
        tell(ticks.tick(used(100, GIB, gpu=GPUS[1])))
    [(pod, reason, text)] = told
    assert (pod, reason) == (one.pod_uid, STRANGER)
    assert "GPU-1" in text


def test_a_pod_that_is_not_known_yet_is_told_later(ticks):
    one = ticks.slices.add(GPUS[0])
    one.charge(0, 7, GIB, flags=SLOT_BYPASS)
    pods: dict = {}
    told = Told()
    tell = PodWarnings(pods.get, told)
    tell(ticks.tick())
    pods[one.pod_uid] = "pod"
    tell(ticks.tick())
    assert [pod for pod, _, _ in told] == ["pod"]


def test_the_answer_in_the_tables_words(ticks):
    one = ticks.slices.add(GPUS[0], cores=40)
    one.bucket(charged=1, waited=1_500_000_000)
    table = ticks.tick(
        devices=[
            MeasuredDevice(
                id=GPUS[0], memory_used_bytes=5, memory_total_bytes=9, utilisation=77.0,
                memory_utilisation=3.0,
            )
        ]
    )  # fmt: skip
    [first, *_] = table.devices
    assert (first.memory_used_bytes, first.memory_total_bytes, first.utilisation) == (5, 9, 77.0)
    found = figures(table, one)
    assert (found.namespace, found.pod_uid, found.container) == ("team", one.pod_uid, "main")
    [device] = found.devices
    assert (device.waited_seconds, device.limit, device.last_active_at) == (1.5, 100, 0.0)
    one.bucket(charged=2, waited=1_500_000_000)
    [device] = figures(ticks.tick(), one).devices
    assert device.last_active_at > 0
    assert replace(table, slices=()).node == "node-1"


def test_no_slices_folder_is_no_problem(tmp_path):
    ticks = Ticks(tmp_path)
    try:
        assert ticks.tick().slices == ()
        ticks.slices = NodeSlices(tmp_path / "slices")
        one = ticks.slices.add(GPUS[0])
        assert [s.id for s in ticks.tick().slices] == [one.id]
        assert ticks.problems == []
    finally:
        ticks.close()


def test_a_vendors_folder_that_cannot_be_read_is_told_once(tmp_path):
    (tmp_path / "slices").mkdir()
    (tmp_path / "slices/nvidia").write_text("")
    ticks = Ticks(tmp_path)
    try:
        for _ in range(3):
            ticks.tick()
        [problem] = ticks.problems
        assert "nvidia cannot be read" in problem
    finally:
        ticks.close()
