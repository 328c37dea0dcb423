"""Which pods still run, by the cgroups of every driver, version and nesting."""

from __future__ import annotations

import os
import shutil

import pytest

from hami.domain.units import PodUid
from hami.slices.cgroups import CgroupUnreadable, PodCgroups, place_of

from .cgroup_trees import (
    cgroupfs,
    cgroupfs_of_v1,
    fill,
    kind,
    kind_from_outside,
    rootless,
    say_populated,
    systemd,
)

UID = PodUid("0f3a6f0c-9d6b-4a5e-8c1d-2b7e5a90c1f4")
OTHER = PodUid("11111111-2222-3333-4444-555555555555")
STATIC = PodUid("9c1b2d3e4f5061728394a5b6c7d8e9f0")

every_layout = pytest.mark.parametrize(
    "layout", [cgroupfs, systemd, kind, kind_from_outside, cgroupfs_of_v1, rootless]
)
every_qos = pytest.mark.parametrize("qos", ["", "burstable", "besteffort"])


@pytest.fixture
def problems():
    return []


@pytest.fixture
def cgroups(tmp_path, problems):
    return PodCgroups(tmp_path, problems.append)


@every_layout
@every_qos
def test_a_pod_with_a_process_is_busy_and_another_is_not(tmp_path, cgroups, problems, layout, qos):
    fill(layout(tmp_path, UID, qos) / "container", 17)
    fill(layout(tmp_path, OTHER, qos))
    assert cgroups.busy([UID, OTHER, PodUid("gone")]) == {UID}
    assert problems == []


@every_layout
def test_a_pod_that_ends_is_busy_no_more(tmp_path, cgroups, layout):
    container = fill(layout(tmp_path, UID, "burstable") / "container", 17)
    assert cgroups.busy([UID]) == {UID}
    fill(container)
    assert cgroups.busy([UID]) == frozenset()
    fill(container, 18)
    shutil.rmtree(container.parent)
    assert cgroups.busy([UID]) == frozenset()


@pytest.mark.parametrize("populated", [True, False])
def test_what_cgroup_v2_says_of_a_pod_is_believed(tmp_path, cgroups, populated):
    pod = fill(systemd(tmp_path, UID, ""))
    say_populated(pod, populated)
    assert cgroups.busy([UID]) == ({UID} if populated else frozenset())


@pytest.mark.parametrize("layout", [cgroupfs, systemd])
def test_a_static_pods_uid_has_no_dashes(tmp_path, cgroups, layout):
    fill(layout(tmp_path, STATIC, "burstable") / "container", 1)
    assert cgroups.busy([STATIC, UID]) == {STATIC}


def test_a_pod_is_busy_while_any_controller_of_v1_has_a_process(tmp_path, cgroups):
    fill(cgroupfs(tmp_path / "cpu,cpuacct", UID, "burstable"))
    fill(cgroupfs(tmp_path / "memory", UID, "burstable") / "container", 17)
    (tmp_path / "cpu").symlink_to("cpu,cpuacct")
    assert cgroups.busy([UID]) == {UID}


def test_a_process_of_a_container_within_a_container_counts(tmp_path, cgroups):
    fill(cgroupfs(tmp_path, UID, "") / "outer" / "docker" / "inner", 17)
    assert cgroups.busy([UID]) == {UID}


def test_a_uid_that_begins_alike_is_another(tmp_path, cgroups):
    fill(cgroupfs(tmp_path, f"{UID}0", "") / "container", 17)
    assert cgroups.busy([UID]) == frozenset()


@pytest.mark.parametrize("there", [True, False], ids=["an empty tree", "no tree"])
def test_where_no_kubelet_is_seen_everything_counts_as_busy(tmp_path, problems, there):
    cgroups = PodCgroups(tmp_path if there else tmp_path / "none", problems.append)
    for _ in range(3):
        assert cgroups.busy([UID, OTHER]) == {UID, OTHER}
    assert len(problems) == 1
    assert "mount the host's /sys/fs/cgroup there" in problems[0]


def test_nothing_asked_is_nothing_read(tmp_path, problems):
    assert PodCgroups(tmp_path / "none", problems.append).busy([]) == frozenset()
    assert problems == []


def test_kubelets_tree_may_come_late_and_be_made_anew(tmp_path, cgroups):
    assert cgroups.busy([UID]) == {UID}
    fill(cgroupfs(tmp_path, OTHER, "") / "c", 1)
    assert cgroups.busy([UID, OTHER]) == {OTHER}
    shutil.rmtree(tmp_path / "kubepods")
    fill(systemd(tmp_path, UID, "") / "c", 1)
    assert cgroups.busy([UID, OTHER]) == {UID}


def test_one_pass_serves_many(tmp_path, cgroups, monkeypatch):
    uids = [PodUid(f"uid-{n}") for n in range(50)]
    for uid in uids:
        say_populated(fill(cgroupfs(tmp_path, uid, "burstable")), populated=True)
    assert cgroups.busy(uids) == set(uids)
    looked, scandir = [], os.scandir
    monkeypatch.setattr(os, "scandir", lambda folder: looked.append(folder) or scandir(folder))
    assert cgroups.busy(uids) == set(uids)
    assert len(looked) == 2


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_what_may_not_be_read_counts_as_busy_and_is_told_once(tmp_path, cgroups, problems):
    pod = fill(cgroupfs(tmp_path, UID, "") / "c", 1).parent
    (pod / "c" / "cgroup.procs").chmod(0)
    assert cgroups.busy([UID]) == {UID}
    assert cgroups.busy([UID]) == {UID}
    assert len(problems) == 1


@pytest.mark.parametrize("name", ["cgroup.procs", "cgroup.events"])
def test_a_pod_that_cannot_be_read_counts_as_busy_and_is_told_once(
    tmp_path, cgroups, problems, name
):
    pod = fill(cgroupfs(tmp_path, UID, ""))
    (pod / name).unlink(missing_ok=True)
    (pod / name).mkdir()
    fill(cgroupfs(tmp_path, OTHER, ""))
    assert cgroups.busy([UID, OTHER]) == {UID}
    assert cgroups.busy([UID, OTHER]) == {UID}
    assert len(problems) == 1
    assert problems[0].startswith(f"pod {UID} counts as running: cannot read {pod}/{name}: ")


# Processes.


@pytest.mark.parametrize(
    "name",
    ["{id}", "cri-containerd-{id}.scope", "crio-{id}.scope"],
    ids=["cgroupfs", "containerd and systemd", "CRI-O and systemd"],
)
def test_the_processes_of_one_container(tmp_path, cgroups, name):
    pod = systemd(tmp_path, UID, "burstable")
    fill(pod / name.format(id="abc"), 17)
    fill(pod / name.format(id="abc") / "inner", 18)
    fill(pod / name.format(id="xabc"), 19)
    fill(pod / name.format(id="def"), 20)
    assert cgroups.pids(UID, "abc") == {17, 18}
    assert cgroups.pids(UID) == {17, 18, 19, 20}
    assert cgroups.pids(UID, "none") == frozenset()
    assert cgroups.pids(OTHER, "abc") == frozenset()


def test_processes_that_our_namespace_does_not_show_have_a_remedy(tmp_path, cgroups):
    fill(cgroupfs(tmp_path, UID, "") / "abc", 0, 0)
    found = cgroups.pids(UID, "abc")
    assert isinstance(found, CgroupUnreadable)
    assert "hostPID: true" in found.problem
    assert cgroups.busy([UID]) == {UID}


def test_processes_where_no_kubelet_is_seen(cgroups):
    assert isinstance(cgroups.pids(UID), CgroupUnreadable)


def test_the_cgroups_of_this_machine_can_be_read(problems):
    """Whatever they are: it says so and does not fail."""
    from pathlib import Path

    cgroups = PodCgroups(Path("/sys/fs/cgroup"), problems.append)
    assert cgroups.busy([UID]) in ({UID}, frozenset())


PLACES = {
    "systemd's driver": ("0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1a_2b.slice/cri-containerd-ff.scope", ("1a-2b", "ff")),
    "cgroupfs": ("0::/kubepods/besteffort/pod1a-2b/ff", ("1a-2b", "ff")),
    "guaranteed": ("0::/kubepods.slice/kubepods-pod1a_2b.slice/crio-ff.scope/container", ("1a-2b", "ff")),
    "within another container": ("0::/docker/ab/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod1a_2b.slice/cri-containerd-ff.scope", ("1a-2b", "ff")),
    "of v1": ("12:memory:/kubepods/burstable/pod1a-2b/ff\n1:name=systemd:/x\n0::/", ("1a-2b", "ff")),
    "seen from a namespace": ("0::/../../kubepods-burstable-pod1a_2b.slice/cri-containerd-ff.scope", ("1a-2b", "ff")),
    "the pod itself": ("0::/kubepods/pod1a-2b", ("1a-2b", "")),
    "a pod that a container made below its own": ("0::/kubepods/pod1a/ff/kubepods/pod2b/ee", ("1a", "ff")),
    "a service": ("0::/system.slice/podruntime.slice/x", None),
    "a service that sounds like a pod": ("0::/podruntime.slice/kubelet", None),
    "kubelet's tree and no pod": ("0::/kubepods.slice/other/pod1a/ff", None),
    "nothing": ("", None),
    "garbage": ("0:/\n::\n0::", None),
}  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), PLACES.values(), ids=PLACES)
def test_where_a_process_runs(text, expected):
    found = place_of(text)
    assert (None if found is None else (found.pod_uid, found.container_id)) == expected
