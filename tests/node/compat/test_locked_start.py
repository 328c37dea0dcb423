"""Before a container starts in the mode ``lock``: kubelet's record says whether the guess was right."""

from __future__ import annotations

import msgspec
import pytest

from hami.domain.slices import ContainerEdits
from hami.kube.node_pod import (
    NodeContainerState,
    NodeContainerStatus,
    NodePod,
    NodePodStatus,
    RunningState,
)
from hami.kube.resources import PODS
from hami.node.kubelet.server import CallRefused
from hami.node.pod.pods import Granted
from hami.node.running.mount_check import MountCheck
from hami.node.slice.live_slices import LiveSlice
from hami.node.slice.views import as_slice
from tests.slices.cgroup_trees import cgroupfs, fill

from .lock_world import a_lock_world


@pytest.fixture
async def world(tmp_path):
    async with a_lock_world(tmp_path) as world:
        yield world


async def start(world, *ids: str) -> None:
    await world.calls.prepare(frozenset(ids))


async def test_the_container_that_was_meant_starts(world):
    pod = await world.add("p", "AB")
    await world.admit(pod, "app0", "A-0", "B-0")
    await start(world, "A-0", "B-0")
    assert world.heard.refusals == []


async def test_it_is_enforced_again_before_each_start(world):
    """After a reboot nothing of before is there."""
    pod = await world.add("p", "A")
    await world.admit(pod, "app0", "A-0")
    await start(world, "A-0")
    await start(world, "A-0")
    assert world.acme.enforced == [("p", "app0")] * 3


async def test_another_pods_devices_are_refused_with_both_pods_named(world):
    """The lock of ``a`` expired, ``b`` took it, and kubelet's Allocate was for ``a``."""
    a = await world.add("a", "A", lock=False, at=200)
    b = await world.add("b", "B")
    await world.admit(a, "app0", "x")
    with pytest.raises(
        CallRefused,
        match=r"pod default/a, container app0: .* allocated for pod default/b, container app0",
    ):
        await start(world, "x")
    # And then the other way round: neither runs with the other's grant.
    await world.admit(b, "app0", "y")
    with pytest.raises(CallRefused, match=r"pod default/b, .* allocated for pod default/a"):
        await start(world, "y")


async def test_another_containers_devices_are_refused(world):
    pod = await world.add("p", "A", "B")
    await world.admit(pod, "app1", "x")
    with pytest.raises(
        CallRefused, match=r"container app1: .* allocated for pod default/p, container app0"
    ):
        await start(world, "x")


async def test_a_pod_made_anew_under_the_name_is_another(world):
    await world.add("p", "A")
    edits = await world.allocate("x")
    await world.remove("p")
    new = await world.add("p", "A", lock=False)
    world.kubelet.record(new.uid, "app0", ("x",), edits)
    with pytest.raises(CallRefused, match="delete both pods"):
        await start(world, "x")


async def test_one_of_several_with_these_ids_that_is_refused_refuses_all(world):
    """Nothing else would keep it from starting: it has no CDI spec that could be missing."""
    pod = await world.add("p", "A")
    await world.admit(pod, "app0", "x")
    await start(world, "x")
    third = await world.add("third", "B", at=50)
    edits = await world.allocate("x")
    other = await world.add("other", "C", lock=False)
    world.kubelet.record(other.uid, "app0", ("x",), edits)
    assert third.uid != other.uid
    with pytest.raises(CallRefused, match=r"pod default/other.* allocated for pod default/third"):
        await start(world, "x")
    world.kubelet.forget(other.uid)
    world.calls._starts._issued.clear()
    await start(world, "x")


async def test_a_pod_that_is_gone_is_no_reason_to_refuse_another(world):
    gone = await world.add("gone", "B", lock=False, at=200)
    await world.add("third", "C")
    await world.admit(gone, "app0", "x")
    pod = await world.add("p", "A")
    await world.admit(pod, "app0", "x")
    with pytest.raises(CallRefused, match="pod default/gone"):
        await start(world, "x")
    await world.remove("gone")
    await start(world, "x")


async def test_a_record_that_is_late_is_waited_for(world):
    pod = await world.add("p", "A")
    edits = await world.allocate("x")
    world.kubelet.record(pod.uid, "app0", ("x",), edits, write=False)
    await start(world, "x")
    assert world.resent == 1


async def test_a_record_that_does_not_come_is_refused_once_and_looked_for_again(world):
    """An older record of these ids is no answer to who has them now."""
    pod = await world.add("p", "A", "B", init=1)
    await world.admit(pod, "init0", "x")
    await world.allocate("x")
    world.calls._starts._rewritten_within = 0.1
    with pytest.raises(CallRefused, match="not written down yet"):
        await start(world, "x")


async def test_ids_that_nobody_holds_are_refused(world):
    with pytest.raises(CallRefused, match="names no container that holds x"):
        await start(world, "x")


async def test_a_pod_that_has_ended_does_not_start_again(world):
    pod = await world.add("p", "A")
    await world.admit(pod, "app0", "x")
    await world.client.patch(
        PODS, "p", {"status": {"phase": "Failed"}}, namespace="default", subresource="status"
    )
    with pytest.raises(CallRefused, match="has ended"):
        await start(world, "x")


async def test_a_pod_that_is_gone_does_not_start(world):
    pod = await world.add("p", "A")
    await world.admit(pod, "app0", "x")
    await world.remove("p")
    with pytest.raises(CallRefused, match="no pod with UID"):
        await start(world, "x")


async def test_what_was_enforced_starts_while_the_api_server_is_away(world):
    pod = await world.add("p", "A")
    await world.admit(pod, "app0", "x")

    async def away(*_arguments, **_options):
        raise TimeoutError

    world.client.list = away
    await start(world, "x")


async def test_a_vendor_that_fails_keeps_the_container_from_starting(world):
    pod = await world.add("p", "A")
    await world.admit(pod, "app0", "x")
    world.acme.fails = "the device fell off the bus"
    with pytest.raises(CallRefused, match="fell off the bus"):
        await start(world, "x")
    world.acme.fails = ""
    await start(world, "x")


async def test_an_allocation_that_was_edited_after_the_start_is_refused(world):
    pod = await world.add("p", "A")
    await world.admit(pod, "app0", "x")
    await world.annotate("p", **{"acme.com/allocated": "B,ACME,100,0:;"})
    with pytest.raises(CallRefused, match="was started with A, its allocation now gives it B"):
        await start(world, "x")


async def test_a_slice_whose_record_is_lost_is_refused(world):
    pod = await world.add("p", "A")
    edits = await world.admit(pod, "app0", "x")
    world.around.slices.drop(edits.annotations["acme.hami.io/slice"])
    with pytest.raises(
        CallRefused, match=r"pod default/p, container app0: the record of its slice .* is lost"
    ):
        await start(world, "x")


async def test_the_owner_is_known_after_the_agents_restart(world):
    pod = await world.add("p", "A")
    await world.admit(pod, "app0", "x")
    await world.by.close()
    again = world.another("ACME")
    again.kubelet = world.kubelet
    records, _ = again.store.recover()
    for record in records:
        granted = again.around.granting.recovered(record.pod, record.container, record.generation)
        assert isinstance(granted, Granted)
        again.around.slices.put(LiveSlice(record, granted))
    await start(again, "x")
    other = await world.add("other", "B", lock=False)
    again.kubelet.forget(pod.uid)
    again.kubelet.record(other.uid, "app0", ("x",), answered(records[0].slice_id))
    with pytest.raises(CallRefused, match=r"pod default/other, .* allocated for pod default/p"):
        await start(again, "x")
    await again.by.close()


def answered(slice_id: str) -> ContainerEdits:
    return ContainerEdits(annotations={"acme.hami.io/slice": slice_id})


# What HAMi's own plugin answered, before a migration.


@pytest.mark.parametrize(
    ("env", "starts"),
    [({"NVIDIA_VISIBLE_DEVICES": "A"}, True), ({"NVIDIA_VISIBLE_DEVICES": "B"}, False), ({}, False)],
    ids=["its devices", "another's", "none"],
)  # fmt: skip
async def test_what_another_agent_answered_starts_with_its_own_devices_only(world, env, starts):
    pod = await world.add("p", "A", phase="success")
    world.kubelet.record(pod.uid, "app0", ("x",), ContainerEdits(env=env))
    if starts:
        await start(world, "x")
    else:
        with pytest.raises(CallRefused, match="another agent gave it"):
            await start(world, "x")


async def test_many_pods_and_no_lock_at_all(world):
    """Whatever is guessed at Allocate, nobody starts with another's devices."""
    pods = [await world.add(f"p{n}", "ABC"[n % 3], lock=False, at=100 + n) for n in range(6)]
    order = [3, 0, 5, 1, 4, 2]
    started = []
    for n in order:
        await world.admit(pods[n], "app0", f"i{n}")
        try:
            await start(world, f"i{n}")
        except CallRefused:
            continue
        started.append(n)
    for n in started:
        edits = world.kubelet.entry(pods[n], "app0").edits
        assert edits.env["VISIBLE_DEVICES"] == "ABC"[n % 3]
    assert len(started) < len(order)


# What else the agent does with its slices.


async def test_a_slice_of_this_mode_is_known_as_one_wherever_it_is_used(world):
    pod = await world.add("p", "A")
    edits = await world.admit(pod, "app0", "x")
    slice_id = edits.annotations["acme.hami.io/slice"]
    (record,), _ = world.store.recover()
    assert record.identity == "lock"
    (live,) = world.around.slices.of_pod(pod.uid)
    assert as_slice(live, world.store.state_dir(slice_id)).identity == "lock"
    assert world.by.slice_ids() == {slice_id}
    assert world.around.folders.written() == set()


async def test_nobody_misses_a_limits_page_that_it_was_never_given(world):
    pod = await world.add("p", "A")
    await world.admit(pod, "app0", "x")
    fill(cgroupfs(world.folder / "cgroup", pod.uid, "") / "abc", 1)
    check = MountCheck(
        world.around, proc=world.folder / "proc", entries=lambda: (), stop=lambda: True
    )
    check.pod_changed(running(await world.around.pods.find(pod.uid), "app0", "containerd://abc"))
    assert list(check._containers(pod.uid)) == []


def running(pod: NodePod, container: str, id: str) -> NodePod:
    state = NodeContainerState(running=RunningState())
    status = NodeContainerStatus(name=container, container_id=id, state=state)
    return msgspec.structs.replace(pod, status=NodePodStatus(container_statuses=[status]))
