"""Whose the measured processes are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hami.domain.measurements import MeasuredDevice, MeasuredSlice
from hami.slices.cgroups import CgroupPlace

from .rounds import GPUS, Ticks, began, figures, strangers, used
from .world import GIB, uid_of

MIB = 1 << 20


@pytest.fixture
def ticks(tmp_path: Path) -> Iterator[Ticks]:
    made = Ticks(tmp_path)
    yield made
    made.close()


def test_each_process_lands_on_the_slice_of_its_container(ticks):
    one, other = ticks.slices.add(GPUS[0]), ticks.slices.add(GPUS[0])
    for number, held in enumerate((one, one, other)):
        ticks.process(held, 100 + number)
    table = ticks.tick(used(100, GIB, 10.0), used(101, GIB, 5.0), used(102, 3 * GIB, 40.0))
    [device] = figures(table, one).devices
    assert (device.used_bytes, device.utilisation) == (2 * GIB, 15.0)
    [device] = figures(table, other).devices
    assert (device.used_bytes, device.utilisation) == (3 * GIB, 40.0)
    assert strangers(table) == []


def test_a_process_on_two_devices_of_its_slice(ticks):
    one = ticks.slices.add(GPUS[1], GPUS[0])
    ticks.process(one, 100)
    table = ticks.tick(used(100, GIB, 10.0, GPUS[0]), used(100, 2 * GIB, 20.0, GPUS[1]))
    assert [d.used_bytes for d in figures(table, one).devices] == [2 * GIB, GIB]
    [process] = figures(table, one).processes
    assert process.used_bytes == (2 * GIB, GIB)
    assert process.utilisation == (20.0, 10.0)


def test_containers_of_one_pod_are_told_apart_by_their_mounts(ticks):
    one = ticks.slices.add(GPUS[0], pod=7, container="main")
    other = ticks.slices.add(GPUS[0], pod=7, container="sidecar")
    ticks.process(one, 100)
    ticks.process(other, 101)
    table = ticks.tick(used(100, GIB), used(101, 2 * GIB))
    assert figures(table, one).devices[0].used_bytes == GIB
    assert figures(table, other).devices[0].used_bytes == 2 * GIB


def test_one_that_hides_its_mounts_is_known_by_its_name_or_has_the_only_slice(ticks):
    alone = ticks.slices.add(GPUS[0], pod=7)
    main = ticks.slices.add(GPUS[0], pod=8, container="main")
    side = ticks.slices.add(GPUS[0], pod=8, container="side")
    for pid, held in ((100, alone), (101, main), (102, side)):
        ticks.proc.add(pid, pod_uid=held.pod_uid, container_id=f"c{pid}")
    ticks.names[CgroupPlace(side.pod_uid, "c102")] = "side"
    ticks.tick(used(100, GIB), used(101, GIB), used(102, 2 * GIB))
    table = ticks.tick(used(100, GIB), used(101, GIB), used(102, 2 * GIB))
    assert figures(table, alone).devices[0].used_bytes == GIB
    assert figures(table, side).devices[0].used_bytes == 2 * GIB
    assert figures(table, main).devices[0].used_bytes == 0
    assert strangers(table) == [(101, main.pod_uid)]


@pytest.mark.parametrize(
    "cgroup",
    [
        "/",
        "/system.slice/dcgm.service",
        "/user.slice/podman-1.scope",
        "/podruntime.slice/kubelet",
        "/kubepods.slice/kubepods-pod0000ffff_aaaa_bbbb_cccc_000000000000.slice/cri-containerd-c1.scope",
    ],
)
def test_who_is_in_no_slice_is_a_stranger_once_it_stays(ticks, cgroup):
    ticks.slices.add(GPUS[0])
    ticks.proc.add(100, cgroup=cgroup)
    assert strangers(ticks.tick(used(100, GIB))) == []
    [(pid, _)] = strangers(ticks.tick(used(100, GIB)))
    assert pid == 100
    assert strangers(ticks.tick()) == []


def test_a_device_that_the_slice_does_not_have_is_not_its(ticks):
    one = ticks.slices.add(GPUS[0])
    ticks.process(one, 100)
    for _ in range(2):
        table = ticks.tick(used(100, GIB, gpu=GPUS[1]))
    assert figures(table, one).devices[0].used_bytes == 0
    assert strangers(table) == [(100, one.pod_uid)]


def test_a_container_cannot_name_a_pod_of_its_own_choice(ticks):
    victim, liar = ticks.slices.add(GPUS[0]), ticks.slices.add(GPUS[0])
    forged = f"kubepods-pod{liar.pod_uid.replace('-', '_')}.slice/cri-containerd-c1.scope"
    nested = f"{forged}/kubepods-pod{victim.pod_uid.replace('-', '_')}.slice/x"
    ticks.proc.add(100, cgroup=f"/kubepods.slice/{nested}", container_id="c1", page=victim.limits)
    table = ticks.tick(used(100, GIB))
    assert figures(table, victim).devices[0].used_bytes == 0


def test_a_monitor_with_a_cgroup_namespace_of_its_own_sees_paths_from_there(ticks):
    one = ticks.slices.add(GPUS[0])
    pod = f"kubepods-besteffort-pod{one.pod_uid.replace('-', '_')}.slice"
    ticks.proc.add(
        100, cgroup=f"/../../../kubepods-besteffort.slice/{pod}/crio-77.scope", page=one.limits
    )
    assert figures(ticks.tick(used(100, GIB)), one).devices[0].used_bytes == GIB


def test_a_number_that_changed_hands_after_the_measurement(ticks):
    one, other = ticks.slices.add(GPUS[0]), ticks.slices.add(GPUS[0])
    ticks.process(one, 100, start_time=began(1))
    ticks.tick(used(100, GIB, 50.0), asked_at=10)
    ticks.proc.end(100)
    ticks.process(other, 100, start_time=began(30))
    table = ticks.tick(used(100, GIB, 50.0), asked_at=20)
    assert figures(table, one).devices[0].used_bytes == GIB
    assert figures(table, other).devices[0].used_bytes == 0
    table = ticks.tick(used(100, 2 * GIB, 5.0), asked_at=40)
    assert figures(table, one).devices[0].used_bytes == 0
    assert figures(table, other).devices[0].used_bytes == 2 * GIB


def test_a_number_that_changed_hands_before_the_measurement(ticks):
    """Its memory is the new one's; whose time it was, nobody can say."""
    one, other = ticks.slices.add(GPUS[0]), ticks.slices.add(GPUS[0])
    ticks.process(one, 100, start_time=began(1))
    ticks.tick(used(100, GIB, 50.0), asked_at=10)
    ticks.proc.end(100)
    ticks.process(other, 100, start_time=began(15))
    table = ticks.tick(used(100, 2 * GIB, 50.0), asked_at=20)
    assert figures(table, one).devices[0].used_bytes == 0
    assert figures(table, other).devices[0].used_bytes == 2 * GIB
    assert figures(table, other).processes[0].utilisation == ()
    assert other.observed.devices[0].utilisation == 0
    table = ticks.tick(used(100, 2 * GIB, 50.0), asked_at=30)
    assert figures(table, other).devices[0].utilisation == 50.0


def test_one_that_was_never_seen_alive_is_nobodys(ticks):
    one = ticks.slices.add(GPUS[0])
    table = ticks.tick(used(100, GIB, 50.0))
    assert figures(table, one).devices[0].used_bytes == 0
    ticks.process(one, 101, start_time=began(30))
    table = ticks.tick(used(101, GIB, 50.0), asked_at=20)
    assert figures(table, one).devices[0].used_bytes == 0


def test_what_the_hardware_counts_of_a_slice_is_believed(ticks):
    one = ticks.slices.add(GPUS[0])
    ticks.process(one, 100)
    counted = MeasuredSlice(device_id=GPUS[0], slice_id=one.id, memory_bytes=5 * GIB)
    devices = [MeasuredDevice(id=GPUS[0])]
    table = ticks.tick(used(100, GIB), slices=[counted], devices=devices)
    [device] = figures(table, one).devices
    assert (device.used_bytes, device.utilisation, device.share) == (5 * GIB, None, None)


def test_256_processes_of_one_container(ticks):
    one = ticks.slices.add(GPUS[0])
    inode = 0
    for number in range(256):
        inode = ticks.process(one, 1000 + number, inner_pid=number + 1)
    for number in range(256):
        one.charge(number, number + 1, MIB, start_time=1, pid_namespace=inode)
    table = ticks.tick(*(used(1000 + number, (number + 1) * MIB) for number in range(256)))
    found = figures(table, one)
    assert [process.slot for process in found.processes] == list(range(256))
    assert list(one.observed.bytes[0]) == [(number + 1) * MIB for number in range(256)]
    assert list(one.observed.slot_generation) == [1] * 256


STEPS = st.lists(
    st.tuples(
        st.integers(1, 6),  # a pid
        st.sampled_from(["start", "end", "late", "end late"]),
        st.integers(0, 3),  # a slice; 3: none
        st.integers(0, 1),  # a device
        st.booleans(),  # in the host's pid namespace
    ),
    max_size=6,
)


@settings(max_examples=60, deadline=None)
@given(st.lists(STEPS, min_size=1, max_size=5))
def test_whatever_starts_and_ends_every_figure_lands_on_its_own_slice(rounds):
    """``late`` changes come after the measurement and before anybody looks whose it was."""
    with TemporaryDirectory() as folder:
        ticks = Ticks(Path(folder))
        try:
            _run(ticks, rounds)
        finally:
            ticks.close()


def _run(ticks: Ticks, rounds: list) -> None:
    slices = [ticks.slices.add(GPUS[0], GPUS[1]) for _ in range(3)]
    alive: dict[int, tuple[int, int, int]] = {}  # pid: slice, device, bytes
    known: set[int] = set()  # pids whose process the tick before looked at, and that still run
    amount = 0

    def start(pid: int, owner: int, device: int, *, host: bool, at: float) -> None:
        nonlocal amount
        if pid in alive:
            return
        amount += 1
        if owner == 3:
            ticks.proc.add(pid, cgroup="/system.slice/x", start_time=began(at))
        else:
            ticks.process(
                slices[owner], pid, start_time=began(at), inner_pid=pid if host else pid + 50,
                namespace="host" if host else f"{owner}",
            )  # fmt: skip
        alive[pid] = (owner, device, amount)

    def end(pid: int) -> None:
        if alive.pop(pid, None) is not None:
            ticks.proc.end(pid)
            known.discard(pid)

    for number, steps in enumerate(rounds, start=1):
        now, looked_at = number * 10.0, set(known)
        for pid, what, owner, device, host in steps:
            if what == "start":
                start(pid, owner, device, host=host, at=now - 5)
            elif what == "end":
                end(pid)
        measured, were_known = dict(alive), set(known)
        # Numbers go round: none changes hands and is let go of again between two looks.
        passed_on = (looked_at - known) & alive.keys()
        for pid, what, owner, device, host in steps:
            if pid in passed_on:
                continue
            if what == "late":
                end(pid)
                start(pid, owner, device, host=host, at=now + 5)
            elif what == "end late":
                end(pid)
        table = ticks.tick(
            *(used(p, size * MIB, gpu=GPUS[device]) for p, (_, device, size) in measured.items()),
            asked_at=now,
        )
        expected: defaultdict[tuple[int, int], int] = defaultdict(int)
        for pid, (owner, device, size) in measured.items():
            unchanged = alive.get(pid) == (owner, device, size)
            if owner < 3 and (unchanged or pid in were_known):
                expected[owner, device] += size * MIB
        for owner, held in enumerate(slices):
            for device, shown in enumerate(figures(table, held).devices):
                assert shown.used_bytes == expected[owner, device], (number, owner, device)
        known = {pid for pid in measured if pid in alive}


def test_a_pod_without_a_slice_of_this_vendor_has_none(ticks):
    ticks.proc.add(100, pod_uid=uid_of(77), container_id="c1")
    ticks.tick(used(100, GIB))
    assert strangers(ticks.tick(used(100, GIB))) == [(100, uid_of(77))]


def test_a_pod_of_hamis_device_plugin_is_no_stranger(ticks, tmp_path):
    """Its slice is HAMi's, whatever its container has made of the region."""
    ticks.proc.add(100, pod_uid=uid_of(77), container_id="c1")
    (tmp_path / "hook/containers" / f"{uid_of(77)}_main").mkdir(parents=True)
    ticks.tick(used(100, GIB))
    assert strangers(ticks.tick(used(100, GIB))) == []
