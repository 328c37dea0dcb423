"""Leases, which leaders compete for, and events, which people read."""

from __future__ import annotations

import asyncio

import pytest

from .cluster import MERGE

NOW = "2026-11-21T12:00:00.000000Z"


def a_lease(holder: str = "me", **spec) -> dict:
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": NOW, **spec}
    return {"metadata": {"name": "l"}, "spec": spec}


async def test_a_lease_is_kept_as_it_is(api):
    created = await api.created("leases", a_lease(acquireTime=NOW, leaseTransitions=0))
    assert created.body["spec"] == {
        "holderIdentity": "me", "leaseDurationSeconds": 15, "renewTime": NOW,
        "acquireTime": NOW, "leaseTransitions": 0,
    }  # fmt: skip


async def test_of_two_who_take_a_lease_one_loses(api):
    created = await api.created("leases", a_lease())
    version = {"metadata": {"name": "l", "resourceVersion": created.version}}
    path = api.path("leases", "l")
    answers = await asyncio.gather(
        *(api.put(path, {**a_lease(holder), **version}) for holder in "abcd")
    )
    assert sorted(answer.status for answer in answers) == [200, 409, 409, 409]


async def test_a_lease_is_not_replaced_without_a_version(api):
    await api.created("leases", a_lease())
    answer = await api.put(api.path("leases", "l"), a_lease("other"))
    assert answer.refusal == (422, "Invalid")
    assert answer.fields() == ["metadata.resourceVersion"]


async def test_a_lease_is_created_by_replacing_it(api):
    answer = await api.put(api.path("leases", "l"), a_lease())
    assert answer.status == 201


@pytest.mark.parametrize("time", ["2026-11-21T12:00:00Z", "2026-11-21T12:00:00.123Z", "now", 1])
async def test_a_leases_times_have_microseconds(api, time):
    answer = await api.post(api.path("leases"), a_lease(renewTime=time))
    assert answer.refusal == (400, "BadRequest")


async def test_a_lease_lasts(api):
    answer = await api.post(api.path("leases"), a_lease(leaseDurationSeconds=0))
    assert answer.refusal == (422, "Invalid")


def an_event(api, name: str = "e", **changes) -> dict:
    about = {"kind": "Pod", "name": "p", "namespace": api.namespace, "uid": "u"}
    return {
        "metadata": {"name": name}, "involvedObject": about, "reason": "Bound", "message": "to n1",
        "type": "Normal", "source": {"component": "hami"}, "count": 1,
        "firstTimestamp": "2026-11-21T12:00:00Z", "lastTimestamp": "2026-11-21T12:00:00Z",
        **changes,
    }  # fmt: skip


async def test_an_event_is_kept(api):
    created = await api.created("events", an_event(api))
    assert created.body["message"] == "to n1"
    assert created.body["eventTime"] is None


async def test_an_event_is_counted_up(api):
    await api.created("events", an_event(api))
    again = {"count": 2, "lastTimestamp": "2026-11-21T12:05:00Z"}
    answer = await api.patch(api.path("events", "e"), again, MERGE)
    assert answer.body["count"] == 2
    assert answer.body["lastTimestamp"] == "2026-11-21T12:05:00Z"


async def test_an_event_is_in_the_namespace_of_what_it_is_about(api):
    about = {"kind": "Pod", "name": "p", "namespace": "elsewhere"}
    answer = await api.post(api.path("events"), an_event(api, involvedObject=about))
    assert answer.refusal == (422, "Invalid")


async def test_an_event_about_a_node_is_in_the_default_namespace(api):
    body = an_event(api, name=f"e-{api.namespace}", involvedObject={"kind": "Node", "name": "n1"})
    assert (await api.post(api.path("events"), body)).status == 422
    answer = await api.post("/api/v1/namespaces/default/events", body)
    assert answer.status == 201
    await api.delete(f"/api/v1/namespaces/default/events/e-{api.namespace}")


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("involvedObject.name=p", ["e1"]),
        ("involvedObject.kind=Pod,involvedObject.uid=u", ["e1"]),
        ("reason=Failed", ["e2"]),
        ("type!=Normal", ["e2"]),
        ("source=hami", ["e1", "e2"]),
    ],
)
async def test_events_are_selected_by_what_they_are_about(api, selector, names):
    await api.created("events", an_event(api, "e1"))
    about = {"kind": "Pod", "name": "q", "namespace": api.namespace}
    other = an_event(api, "e2", involvedObject=about, type="Warning", reason="Failed")
    await api.created("events", other)
    answer = await api.get(api.path("events"), fieldSelector=selector)
    assert answer.names == names


async def test_both_groups_show_the_same_events(api):
    path = f"/apis/events.k8s.io/v1/namespaces/{api.namespace}/events"
    about = {"kind": "Pod", "name": "p", "namespace": api.namespace}
    body = {
        "metadata": {"name": "new"}, "regarding": about, "reason": "Scheduled", "note": "to n1",
        "type": "Normal", "action": "Binding", "eventTime": NOW,
        "reportingController": "kube-scheduler", "reportingInstance": "kube-scheduler-1",
    }  # fmt: skip
    created = await api.post(path, body)
    assert created.status == 201, created.body
    assert (created.body["note"], created.body["regarding"]) == ("to n1", about)
    core = (await api.get(api.path("events", "new"))).body
    assert (core["message"], core["involvedObject"]) == ("to n1", about)
    assert core["reportingComponent"] == "kube-scheduler"
    await api.created("events", an_event(api, "old"))
    old = (await api.get(f"{path}/old")).body
    assert (old["note"], old["deprecatedCount"]) == ("to n1", 1)
    assert old["deprecatedSource"] == {"component": "hami"}
    assert (await api.get(path)).names == ["new", "old"]


async def test_a_new_event_says_when_and_by_whom(api):
    path = f"/apis/events.k8s.io/v1/namespaces/{api.namespace}/events"
    about = {"kind": "Pod", "name": "p", "namespace": api.namespace}
    body = {
        "metadata": {"name": "e"},
        "regarding": about,
        "reason": "R",
        "eventTime": NOW,
        "type": "Normal",
    }
    answer = await api.post(path, body)
    assert answer.refusal == (422, "Invalid")
    assert {"reportingController", "reportingInstance", "action"} <= set(answer.fields())
