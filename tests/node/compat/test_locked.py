"""HAMi's protocol at Allocate: whom it serves, what it writes, and what it leaves alone."""

from __future__ import annotations

import asyncio

import pytest

from hami.kube.resources import NODES, PODS
from hami.node.kubelet.server import CallRefused

from .lock_world import LOCK, NODE, OWN_LOCK, PHASE, a_lock_world

TO_ALLOCATE = "acme.com/to-allocate"


@pytest.fixture
async def world(tmp_path):
    async with a_lock_world(tmp_path) as world:
        yield world


async def test_the_pod_that_holds_the_lock_gets_its_devices_and_the_node_is_free(world):
    await world.add("p", "AB")
    edits = await world.allocate("A-0", "C-7")
    assert edits.env == {"VISIBLE_DEVICES": "A,B", "PLAIN": "1"}
    assert await world.annotation("p", TO_ALLOCATE) == ";"
    assert await world.annotation("p", "acme.com/allocated") == "A,ACME,100,0:B,ACME,100,0:;"
    assert await world.annotation("p", "acme.com/made") == "A,B"
    assert await world.annotation("p", PHASE) == "success"
    assert await world.locked() == ""
    assert world.problems == []


async def test_the_containers_of_a_pod_one_after_the_other_init_containers_first(world):
    pod = await world.add("p", "A", "", "B", "C", init=1)
    for n, (container, devices, left) in enumerate(
        [
            ("init0", "A", ";;B,ACME,100,0:;C,ACME,100,0:;"),
            ("app1", "B", ";;;C,ACME,100,0:;"),
            ("app2", "C", ";;;;"),
        ]
    ):
        assert await world.locked() != ""
        assert await world.annotation("p", PHASE) == "allocating"
        edits = await world.admit(pod, container, f"{devices}-{n}")
        assert edits.env["VISIBLE_DEVICES"] == devices
        assert await world.annotation("p", TO_ALLOCATE) == left
    assert world.acme.enforced == [("p", "init0"), ("p", "app1"), ("p", "app2")]
    assert await world.annotation("p", PHASE) == "success"
    assert await world.locked() == ""


async def test_hami_bug_containers_are_served_around_slots_that_its_scheduler_left_out(world):
    """It writes none for a container without devices of the vendor (its issues 2899, 2900)."""
    pod = await world.add("p", "", "A", "", "B", init=2)
    left_out = "A,ACME,100,0:;B,ACME,100,0:;"
    await world.annotate("p", **{TO_ALLOCATE: left_out, "acme.com/allocated": left_out})
    for container, devices in [("init1", "A"), ("app1", "B")]:
        edits = await world.admit(pod, container, f"{devices}-1")
        assert edits.env["VISIBLE_DEVICES"] == devices
    assert world.acme.enforced == [("p", "init1"), ("p", "app1")]
    assert await world.annotation("p", PHASE) == "success"
    assert await world.locked() == ""


async def test_a_slice_has_a_record_by_which_its_owner_is_known(world):
    pod = await world.add("p", "A")
    edits = await world.allocate("A-0")
    slice_id = edits.annotations["acme.hami.io/slice"]
    (record,), damaged = world.store.recover()
    assert damaged == []
    assert (record.slice_id, record.pod.uid, record.container) == (slice_id, pod.uid, "app0")
    assert record.state == "enforced"
    assert [(g.device_id, g.memory_mib) for g in record.grants] == [("A", 100)]
    assert world.around.slices.get(slice_id).record == record


async def test_without_a_lock_the_pod_bound_first_is_served(world):
    await world.add("late", "B", lock=False, at=200)
    await world.add("early", "A", lock=False, at=100)
    assert (await world.allocate("x")).env["VISIBLE_DEVICES"] == "A"
    assert (await world.allocate("x")).env["VISIBLE_DEVICES"] == "B"


async def test_a_pod_that_wants_another_number_of_devices_is_not_meant(world):
    """The lock of the pod in question expired, and another pod took it."""
    await world.add("first", "A", lock=False)
    await world.add("second", "BC")
    assert (await world.allocate("x")).env["VISIBLE_DEVICES"] == "A"
    assert "second" in await world.locked()
    assert await world.annotation("second", PHASE) == "allocating"


@pytest.mark.parametrize(
    "lock",
    [
        pytest.param("2026-01-01T12:00:00Z,default,gone", id="of a pod that is gone"),
        pytest.param("2026-01-01T12:00:00Z", id="of old, without an owner"),
        pytest.param("rubbish", id="that cannot be read"),
    ],
)
async def test_a_lock_that_leads_nowhere_is_passed_over(world, lock):
    await world.add("p", "A", lock=False)
    await world.lock(lock)
    assert (await world.allocate("x")).env["VISIBLE_DEVICES"] == "A"
    # HAMi's own plugin releases one without an owner too.
    assert await world.locked() == ("" if lock.endswith("Z") else lock)


async def test_a_pod_bound_elsewhere_is_not_served_whatever_the_lock_says(world):
    elsewhere = {
        "metadata": {"name": "p", "annotations": {TO_ALLOCATE: "A,ACME,100,0:;"}},
        "spec": {"nodeName": "n2", "containers": [{"name": "app0", "image": "x"}]},
    }
    await world.client.create(PODS, elsewhere, namespace="default")
    await world.lock("2026-01-01T12:00:00Z,default,p")
    with pytest.raises(CallRefused, match="no binding pod found on node n1"):
        await world.allocate("x")
    assert await world.annotation("p", PHASE) is None


async def test_nobody_is_pending(world):
    with pytest.raises(CallRefused, match=r"^no binding pod found on node n1$"):
        await world.allocate("x")


# Failures.


async def test_a_wrong_number_of_devices_fails_the_pod_and_frees_the_node(world):
    await world.add("p", "AB")
    with pytest.raises(
        CallRefused, match=r"pod default/p: container app0: device number not matched.* 1, .* 2"
    ):
        await world.allocate("x")
    assert await world.annotation("p", PHASE) == "failed"
    assert await world.annotation("p", TO_ALLOCATE) == "A,ACME,100,0:B,ACME,100,0:;"
    assert await world.locked() == ""
    assert world.acme.enforced == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param("A,ACME,lots,0:;", "lots", id="that cannot be read"),
        pytest.param(";A,ACME,100,0:;", r"container index 1 out of range \(init=0, regular=1\)", id="beyond the containers"),
        pytest.param("B,ACME,100,0:;", "it is to be allocated B, and the scheduler gave it A", id="that was edited"),
    ],
)  # fmt: skip
async def test_a_list_fails_the_pod_and_frees_the_node(world, text, says):
    await world.add("p", "A")
    await world.annotate("p", **{TO_ALLOCATE: text})
    with pytest.raises(CallRefused, match=says):
        await world.allocate("x")
    assert await world.annotation("p", PHASE) == "failed"
    assert await world.locked() == ""


async def test_the_holder_of_the_lock_that_has_all_it_needs_is_not_blamed(world):
    await world.add("p", "A")
    await world.allocate("x")
    await world.lock("2026-01-01T12:00:00Z,default,p")
    with pytest.raises(
        CallRefused,
        match="no binding pod found on node n1; pod default/p, which holds its lock: no pending device allocation found",
    ):
        await world.allocate("x")
    assert await world.annotation("p", PHASE) == "success"


async def test_a_vendor_that_fails_fails_the_pod_with_its_text(world):
    await world.add("p", "A")
    world.acme.fails = "no such device"
    with pytest.raises(CallRefused, match=r"pod default/p, container app0: .*no such device"):
        await world.allocate("x")
    assert await world.annotation("p", PHASE) == "failed"
    assert await world.annotation("p", TO_ALLOCATE) == "A,ACME,100,0:;"
    assert await world.locked() == ""


async def test_the_next_pod_is_served_after_one_that_failed(world):
    await world.add("bad", "A")
    world.acme.fails = "no"
    with pytest.raises(CallRefused):
        await world.allocate("x")
    world.acme.fails = ""
    await world.add("good", "B", at=200)
    assert (await world.allocate("x")).env["VISIBLE_DEVICES"] == "B"


async def test_a_forged_signature_fails_the_pod(world):
    await world.add("p", "A")
    await world.annotate("p", **{"hami.io/allocation-signature": "x.1.y"})
    with pytest.raises(CallRefused, match="signature"):
        await world.allocate("x")
    assert await world.annotation("p", PHASE) == "failed"
    assert await world.locked() == ""


@pytest.mark.parametrize(
    ("others", "key"),
    [
        pytest.param("2026-01-01T12:00:00Z,default,other", LOCK, id="by name"),
        pytest.param("2026-01-01T12:00:00Z,else,p", LOCK, id="of that name in another namespace"),
        pytest.param("rubbish", LOCK, id="that cannot be read"),
    ],
)
@pytest.mark.parametrize("fails", [False, True])
async def test_another_pods_lock_is_never_released(world, others, key, fails):
    await world.add("p", "A", lock=False)
    await world.add("other", "", "BC", lock=False)
    await world.lock(others)
    world.acme.fails = "no" if fails else ""
    if fails:
        with pytest.raises(CallRefused):
            await world.allocate("x")
    else:
        await world.allocate("x")
    assert await world.locked() == others


async def test_a_lock_without_an_owner_that_was_taken_anew_meanwhile_stays(world):
    world.acme.may_end.clear()
    await world.add("p", "A", lock=False)
    await world.lock("2026-01-01T12:00:00Z")
    asked = asyncio.create_task(world.allocate("x"))
    while not world.around.slices.pods:
        await asyncio.sleep(0.005)
    await world.lock("2026-01-01T12:09:00Z")
    world.acme.may_end.set()
    await asked
    assert await world.locked() == "2026-01-01T12:09:00Z"


# Several vendors, and other locks.


async def test_a_pod_of_two_vendors_is_done_when_both_are_whoever_is_last(world):
    await world.add("p", acme=["A"], bolt=["B"])
    bolt = world.another("BOLT")
    assert (await world.allocate("x")).env["VISIBLE_DEVICES"] == "A"
    assert await world.annotation("p", PHASE) == "allocating"
    assert await world.locked() != ""
    assert (await bolt.allocate("x")).env["VISIBLE_DEVICES"] == "B"
    assert await world.annotation("p", PHASE) == "success"
    assert await world.locked() == ""
    assert await world.annotation("p", "acme.com/made") == "A"
    await bolt.by.close()


async def test_of_two_vendors_at_once_one_is_last(world):
    bolt = world.another("BOLT")
    for n in range(5):
        await world.add(f"p{n}", acme=["A"], bolt=["B"])
        await asyncio.gather(world.allocate("x"), bolt.allocate("x"))
        assert await world.annotation(f"p{n}", PHASE) == "success"
        assert await world.locked() == ""
    await bolt.by.close()


@pytest.mark.parametrize(
    ("identities", "waits"),
    [("BOLT=kubelet", False), ("BOLT=lock", True), ("", True)],
)
async def test_a_vendor_whose_agent_needs_no_lock_is_not_waited_for(world, identities, waits):
    await world.lock(identities, key="hami.io/node-identity")
    await world.lock("[]\n", key="bolt.com/register")
    await world.add("p", acme=["A"], bolt=["B"])
    await world.allocate("x")
    assert bool(await world.locked()) is waits


async def test_a_vendors_own_lock_is_released_and_hamis_left_alone(world):
    camb = world.another("CAMB")
    await world.add("p", camb=["A"], lock=False)
    await world.lock("2026-01-01T12:00:00Z", key=OWN_LOCK)
    await world.lock("2026-01-01T12:00:00Z,default,p")
    assert (await camb.allocate("x")).env["VISIBLE_DEVICES"] == "A"
    assert await world.locked(OWN_LOCK) == ""
    assert await world.locked() == "2026-01-01T12:00:00Z,default,p"
    await camb.by.close()


# One after the other.


async def test_allocates_at_once_are_served_in_turn(world):
    await world.add("p", "A", "B", "C")
    edits = await asyncio.gather(*(world.allocate(f"{n}") for n in range(3)))
    assert [one.env["VISIBLE_DEVICES"] for one in edits] == ["A", "B", "C"]
    assert len({one.annotations["acme.hami.io/slice"] for one in edits}) == 3
    assert await world.annotation("p", PHASE) == "success"


async def test_one_that_fails_does_not_stop_those_behind_it(world):
    await world.add("p", "AB")
    answers = await asyncio.gather(world.allocate("x"), world.allocate("x"), return_exceptions=True)
    assert all(isinstance(answer, CallRefused) for answer in answers)
    assert "device number" in str(answers[0])
    assert "no binding pod" in str(answers[1])


async def test_what_kubelet_waits_for_no_more_is_ended(world):
    world.acme.may_end.clear()
    await world.add("p", "A")
    asked = asyncio.create_task(world.allocate("x"))
    while not world.around.slices.pods:
        await asyncio.sleep(0.005)
    asked.cancel()
    world.acme.may_end.set()
    await world.by.close()
    assert await world.annotation("p", PHASE) == "success"
    assert await world.locked() == ""


# The API server.


async def test_only_status_is_written(world):
    """It is all that the agent's role allows."""
    await world.add("p", "A")
    written = []
    patch = world.client.patch

    async def watched(resource, name, body, **options):
        written.append((resource.plural, options.get("subresource", "")))
        return await patch(resource, name, body, **options)

    world.client.patch = watched
    await world.allocate("x")
    assert set(written) == {("pods", "status"), ("nodes", "status")}


async def test_a_pod_made_anew_under_the_name_is_not_written(world):
    world.acme.may_end.clear()
    await world.add("p", "A")
    asked = asyncio.create_task(world.allocate("x"))
    while not world.around.slices.pods:
        await asyncio.sleep(0.005)
    await world.remove("p")
    await world.add("p", "B", lock=False)
    world.acme.may_end.set()
    with pytest.raises(CallRefused, match="cannot take its devices off its list"):
        await asked
    assert await world.annotation("p", TO_ALLOCATE) == "B,ACME,100,0:;"
    assert await world.annotation("p", PHASE) == "allocating"


async def test_a_defect_of_ours_frees_the_node_too(world, monkeypatch):
    await world.add("p", "A")
    monkeypatch.setattr(world.around.store, "create", lambda record: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        await world.allocate("x")
    assert await world.annotation("p", PHASE) == "failed"
    assert await world.locked() == ""


# GetPreferredAllocation.


async def test_kubelet_chooses_by_itself_unless_the_node_says_otherwise(world):
    await world.add("p", "B")
    assert tuple(await world.calls.prefer(["A-0", "B-0"], [], 1)) == ()
    world.around.config.now = {"nodeconfig": [{"name": NODE, "enablegetpreferredallocation": True}]}
    assert tuple(await world.calls.prefer(["A-0", "B-0"], [], 1)) == ("B-0",)
    assert await world.annotation("p", TO_ALLOCATE) == "B,ACME,100,0:;"


async def test_a_preference_without_a_pod_says_why(world):
    world.around.config.now = {"nodeconfig": [{"enablegetpreferredallocation": True}]}
    with pytest.raises(CallRefused, match="no binding pod"):
        await world.calls.prefer(["A-0"], [], 1)


async def test_the_schedulers_choice_holds_whatever_kubelet_takes(world):
    await world.add("p", "B")
    assert (await world.allocate("A-0")).env["VISIBLE_DEVICES"] == "B"


async def test_the_node_is_gone(world):
    await world.client.delete(NODES, NODE)
    with pytest.raises(CallRefused, match="cannot find out whom kubelet allocates for"):
        await world.allocate("x")
