"""Binding: one write that gives a pod its node, its allocation and its condition, or none of it."""

from __future__ import annotations

import asyncio

import pytest

from .cluster import a_binding

ALLOCATION = {"hami.io/vgpu-node": "n1", "hami.io/bind-phase": "allocating"}


async def test_a_binding_assigns_the_pod(api):
    await api.pod("p")
    answer = await api.post(api.path("pods", "p", "binding"), a_binding("p"))
    assert answer.status == 201
    assert (answer.body["kind"], answer.body["status"]) == ("Status", "Success")
    pod = (await api.get(api.path("pods", "p"))).body
    assert pod["spec"]["nodeName"] == "n1"
    condition = pod["status"]["conditions"][0]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "True")
    assert condition["lastTransitionTime"]
    assert pod["status"]["phase"] == "Pending"


async def test_the_bindings_annotations_and_labels_become_the_pods(api):
    await api.pod(
        "p",
        metadata={
            "annotations": {"mine": "1", "hami.io/bind-phase": "forged"},
            "labels": {"l": "1"},
        },
    )
    body = a_binding("p", annotations=ALLOCATION, labels={"hami.io/vgpu-node": "n1", "l": "2"})
    await api.post(api.path("pods", "p", "binding"), body)
    pod = await api.get(api.path("pods", "p"))
    assert pod.meta["annotations"] == {"mine": "1", **ALLOCATION}
    assert pod.meta["labels"] == {"l": "2", "hami.io/vgpu-node": "n1"}


async def test_all_of_it_is_one_event(api):
    created = await api.pod("p")
    async with api.watch(api.path("pods"), resourceVersion=created.version) as events:
        body = a_binding("p", annotations=ALLOCATION, labels={"l": "1"})
        await api.post(api.path("pods", "p", "binding"), body)
        await api.patch(api.path("pods", "p"), {"metadata": {"annotations": {"after": "1"}}})
        type, pod = await events.next()
        _, next_one = await events.next()
    assert type == "MODIFIED"
    assert pod["spec"]["nodeName"] == "n1"
    assert pod["metadata"]["annotations"] == ALLOCATION
    assert pod["metadata"]["labels"] == {"l": "1"}
    assert pod["status"]["conditions"][0]["type"] == "PodScheduled"
    assert next_one["metadata"]["annotations"]["after"] == "1"


async def test_the_uid_is_a_precondition(api):
    created = await api.pod("p")
    path = api.path("pods", "p", "binding")
    answer = await api.post(path, a_binding("p", uid="another", annotations=ALLOCATION))
    assert answer.refusal == (409, "Conflict")
    assert "UID in precondition: another" in answer.message
    pod = await api.get(api.path("pods", "p"))
    assert pod.version == created.version
    assert (await api.post(path, a_binding("p", uid=created.meta["uid"]))).status == 201


async def test_a_pod_is_bound_once(api):
    await api.pod("p")
    await api.bound("p", "n1")
    before = await api.get(api.path("pods", "p"))
    again = await api.post(
        api.path("pods", "p", "binding"), a_binding("p", "n2", annotations=ALLOCATION)
    )
    assert again.refusal == (409, "Conflict")
    assert again.message == (
        'Operation cannot be fulfilled on pods/binding "p": pod p is already assigned to node "n1"'
    )
    assert again.body["details"] == {"name": "p", "kind": "pods/binding"}
    assert (await api.get(api.path("pods", "p"))).body == before.body


async def test_of_many_bindings_at_once_one_wins(api):
    await api.pod("p")
    path = api.path("pods", "p", "binding")
    answers = await asyncio.gather(*(api.post(path, a_binding("p", f"n{i}")) for i in range(8)))
    assert sorted(answer.status for answer in answers) == [201, *[409] * 7]


async def test_a_pod_on_its_way_out_is_not_bound(api):
    await api.pod("p", metadata={"finalizers": ["hami.io/test"]})
    await api.delete(api.path("pods", "p"))
    answer = await api.post(api.path("pods", "p", "binding"), a_binding("p"))
    assert answer.refusal == (409, "Conflict")
    assert answer.message.endswith("pod p is being deleted, cannot be assigned to a host")
    await api.patch(api.path("pods", "p"), {"metadata": {"finalizers": None}})


async def test_a_gated_pod_is_not_bound(api):
    await api.pod("p", schedulingGates=[{"name": "hami.io/gate"}])
    answer = await api.post(api.path("pods", "p", "binding"), a_binding("p"))
    assert answer.refusal == (409, "Conflict")
    assert answer.message.endswith("pod p has non-empty .spec.schedulingGates")


async def test_what_does_not_exist_is_not_bound(api):
    answer = await api.post(api.path("pods", "p", "binding"), a_binding("p"))
    assert answer.refusal == (404, "NotFound")


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(a_binding("other"), id="another name"),
        pytest.param({"metadata": {"name": "p"}, "target": {"kind": "Node"}}, id="no node"),
        pytest.param({"metadata": {"name": "p"}, "target": {"kind": "Pod", "name": "x"}}, id="no node's kind"),
        pytest.param({"metadata": {"name": "p"}, "target": "n1"}, id="a text for a target"),
        pytest.param(a_binding("p", annotations={"a": 1}), id="an annotation that is a number"),
    ],
)  # fmt: skip
async def test_what_is_no_binding_does_not_bind(api, body):
    created = await api.pod("p")
    answer = await api.post(api.path("pods", "p", "binding"), body)
    # A real server answers some of these with 500.
    assert answer.status >= 400
    assert (await api.get(api.path("pods", "p"))).version == created.version


async def test_a_dry_run_binds_nothing(api):
    created = await api.pod("p")
    answer = await api.post(api.path("pods", "p", "binding"), a_binding("p"), dryRun="All")
    assert answer.status == 201
    assert (await api.get(api.path("pods", "p"))).version == created.version


async def test_the_older_path_binds_too(api):
    await api.pod("p")
    assert (await api.post(api.path("bindings"), a_binding("p"))).status == 201
    assert (await api.get(api.path("pods", "p"))).body["spec"]["nodeName"] == "n1"


async def test_the_node_need_not_exist(api):
    await api.pod("p")
    await api.bound("p", "nowhere")


async def test_the_conditions_time_is_that_of_the_change(api):
    await api.pod("p")
    unschedulable = {
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes",
        "lastTransitionTime": "2020-01-01T00:00:00Z",
    }  # fmt: skip
    await api.set_status("p", conditions=[unschedulable])
    await api.bound("p")
    conditions = (await api.get(api.path("pods", "p"))).body["status"]["conditions"]
    assert [c["type"] for c in conditions] == ["PodScheduled"]
    assert conditions[0]["status"] == "True"
    assert "reason" not in conditions[0]
    assert conditions[0]["lastTransitionTime"] > "2020-01-01T00:00:00Z"
