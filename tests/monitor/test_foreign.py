"""Slices of HAMi's own library beside ours, in one tick after the other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hami.monitor.compat.region_files import RegionFolder
from hami.monitor.compat.region_layout import MAGIC
from hami.monitor.table import DeviceFigures, SliceDevice, SliceFigures
from hami.monitor.tick.foreign import VENDOR, ForeignSlices

from .compat.regions import GPUS, KINDS, Live, Told, region_bytes

KIND = KINDS[-1]
DEVICES = [
    DeviceFigures(vendor=VENDOR, id=gpu, index=n, model="m", memory_total_bytes=1)
    for n, gpu in enumerate(GPUS)
]


class Hook:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.problems: list[str] = []
        self.names = {"uid-1": ("team", "pod-1")}
        self.foreign = ForeignSlices(RegionFolder(folder), self.names.get, self.problems.append)

    def add(self, name: str, told: Told) -> Path:
        path = self.folder / "containers" / name / "x.cache"
        path.parent.mkdir(parents=True)
        path.write_bytes(region_bytes(KIND, told))
        return path

    def words(self, path: Path) -> tuple[int, int]:
        region = KIND.region.from_buffer_copy(path.read_bytes())
        return region.recent_kernel, region.utilization_switch


@pytest.fixture
def hook(tmp_path: Path) -> Hook:
    return Hook(tmp_path)


def ours(priority: int, utilisation: float | None) -> SliceFigures:
    return SliceFigures(
        id="s1", vendor=VENDOR, namespace="n", pod="p", pod_uid="u", container="c", generation=1,
        created_at=0.0, library="1", priority=priority,
        devices=(
            SliceDevice(
                index=0, device_id=GPUS[0], memory_limit_bytes=0, used_bytes=0, charged_bytes=0,
                utilisation=utilisation,
            ),
        ),
    )  # fmt: skip


def test_they_are_shown_with_their_pods_name_where_it_is_known(hook):
    hook.add("uid-1_main", Told())
    hook.add("uid-2_main", Told(live=(Live(), Live(pid=8))))
    shown = hook.foreign.look(DEVICES, [], 100.0)
    assert [(s.namespace, s.pod, s.container, s.source) for s in shown] == [
        ("team", "pod-1", "main", "hami-core"),
        ("", "", "main", "hami-core"),
    ]
    assert [len(s.processes) for s in shown] == [1, 2]


def test_without_devices_nothing_is_read(hook):
    hook.add("uid-1_main", Told())
    assert hook.foreign.look([], [], 100.0) == []


def test_they_are_answered_every_five_seconds(hook):
    path = hook.add("uid-1_main", Told(recent=2, switch=1))
    hook.foreign.look(DEVICES, [], 100.0)
    assert hook.words(path) == (1, 0)
    hook.foreign.look(DEVICES, [], 102.0)
    assert hook.words(path) == (1, 0)
    hook.foreign.look(DEVICES, [], 105.0)
    assert hook.words(path) == (0, 0)


@pytest.mark.parametrize(("count", "times"), [(100, 4), (600, 2), (1024, 2)])
def test_one_that_takes_long_to_read_is_read_as_often_as_it_is_answered(hook, count, times):
    """However many processes it claims to have: none of them need live, or make sense."""
    told = Told(live=(Live(status=0),) * (count - 1) + (Live(),))
    big, small = hook.add("uid-1_main", told), hook.add("uid-2_main", Told())
    seen = []
    for at in (100.0, 101.0, 104.0, 105.0):
        for path, now in ((big, told), (small, Told())):
            path.write_bytes(region_bytes(KIND, replace(now, limits=(int(at),), recent=1)))
        first, second = hook.foreign.look(DEVICES, [], at)
        seen.append(first.devices[0].memory_limit_bytes)
        assert second.devices[0].memory_limit_bytes == int(at) << 20
    assert len(set(seen)) == times
    assert seen[-1] == 105 << 20


@pytest.mark.parametrize(
    ("priority", "utilisation", "expected"),
    [(0, 30.0, (-1, 1)), (1, 30.0, (1, 1)), (0, 0.0, (1, 0)), (0, None, (1, 0))],
)
def test_a_slice_of_ours_that_computes_is_in_their_way(hook, priority, utilisation, expected):
    path = hook.add("uid-1_main", Told(priority=1))
    hook.foreign.look(DEVICES, [ours(priority, utilisation)], 100.0)
    assert hook.words(path) == expected


def test_one_that_cannot_be_read_is_told_once_and_stops_no_other(hook):
    hook.add("uid-1_main", Told()).write_bytes(b"garbage")
    hook.add("uid-2_main", Told())
    for now in (100.0, 101.0):
        assert len(hook.foreign.look(DEVICES, [], now)) == 1
    [problem] = hook.problems
    assert "uid-1_main" in problem


def test_one_whose_garbage_is_another_at_every_look_is_told_once(hook):
    path = hook.add("uid-1_main", Told())
    for size in (100, 200, 300):
        path.write_bytes(MAGIC.to_bytes(4, "little") + bytes(size))
        hook.foreign.look(DEVICES, [], 100.0)
    [problem] = hook.problems
    assert "uid-1_main" in problem
