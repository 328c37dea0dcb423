"""Evictions, and the budgets that refuse them."""

from __future__ import annotations

import pytest


def an_eviction(name: str, **options) -> dict:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    return {**body, "deleteOptions": options} if options else body


async def running(api, name: str, **labels: str) -> None:
    await api.pod(name, metadata={"labels": labels})
    await api.bound(name)
    await api.set_status(name, phase="Running", conditions=[{"type": "Ready", "status": "True"}])


async def budget(api, allowed: int, **spec) -> None:
    body = {"metadata": {"name": "b"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, **spec}}
    await api.created("poddisruptionbudgets", body)
    await api.eventually(
        lambda: api.get(api.path("poddisruptionbudgets", "b")),
        lambda answer: (
            answer.body["status"].get("observedGeneration") == 1
            and answer.body["status"]["disruptionsAllowed"] == allowed
        ),
    )


async def test_an_evicted_pod_ends_gracefully(api):
    await running(api, "p")
    answer = await api.post(api.path("pods", "p", "eviction"), an_eviction("p"))
    assert answer.status == 201
    assert answer.body["status"] == "Success"
    pod = await api.get(api.path("pods", "p"))
    assert pod.meta["deletionGracePeriodSeconds"] == 30
    reasons = {c["type"]: c.get("reason") for c in pod.body["status"]["conditions"]}
    assert reasons["DisruptionTarget"] == "EvictionByEvictionAPI"


async def test_an_eviction_may_say_how_long(api):
    await running(api, "p")
    body = an_eviction("p", gracePeriodSeconds=0)
    assert (await api.post(api.path("pods", "p", "eviction"), body)).status == 201
    assert (await api.get(api.path("pods", "p"))).status == 404


async def test_a_pod_that_waits_goes_at_once(api):
    await api.pod("p")
    assert (await api.post(api.path("pods", "p", "eviction"), an_eviction("p"))).status == 201
    assert (await api.get(api.path("pods", "p"))).status == 404


async def test_a_budget_lets_go_only_so_many(api):
    await running(api, "p1", a="b")
    await running(api, "p2", a="b")
    await budget(api, 1, minAvailable=1)
    first = await api.post(api.path("pods", "p1", "eviction"), an_eviction("p1"))
    assert first.status == 201
    second = await api.post(api.path("pods", "p2", "eviction"), an_eviction("p2"))
    assert second.refusal == (429, "TooManyRequests")
    assert second.message == "Cannot evict pod as it would violate the pod's disruption budget."
    assert second.body["details"]["causes"][0]["reason"] == "DisruptionBudget"
    assert "deletionTimestamp" not in (await api.get(api.path("pods", "p2"))).meta


async def test_the_budgets_status_counts(api):
    await running(api, "p1", a="b")
    await running(api, "p2", a="b")
    await api.pod("p3", metadata={"labels": {"a": "b"}})
    await budget(api, 1, minAvailable=1)
    status = (await api.get(api.path("poddisruptionbudgets", "b"))).body["status"]
    expected = {"currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 3}
    assert {key: status[key] for key in expected} == expected


async def test_a_pod_of_no_budget_goes(api):
    await running(api, "p", other="label")
    await budget(api, 0, minAvailable=1)
    assert (await api.post(api.path("pods", "p", "eviction"), an_eviction("p"))).status == 201


async def test_a_budget_does_not_hold_what_never_ran(api):
    await api.pod("p", metadata={"labels": {"a": "b"}})
    await budget(api, 0, minAvailable=1)
    assert (await api.post(api.path("pods", "p", "eviction"), an_eviction("p"))).status == 201


async def test_what_does_not_exist_is_not_evicted(api):
    answer = await api.post(api.path("pods", "p", "eviction"), an_eviction("p"))
    assert answer.refusal == (404, "NotFound")


@pytest.mark.parametrize(
    ("body", "refusal"),
    [
        pytest.param(an_eviction("other"), (400, "BadRequest"), id="another name"),
        pytest.param(
            an_eviction("p", preconditions={"uid": "x"}), (409, "Conflict"), id="another uid"
        ),
    ],
)
async def test_an_eviction_is_of_one_pod(api, body, refusal):
    await running(api, "p")
    answer = await api.post(api.path("pods", "p", "eviction"), body)
    assert answer.refusal == refusal


async def test_a_dry_run_evicts_nothing(api):
    await running(api, "p")
    before = await api.get(api.path("pods", "p"))
    answer = await api.post(api.path("pods", "p", "eviction"), an_eviction("p"), dryRun="All")
    assert answer.status == 201
    assert (await api.get(api.path("pods", "p"))).version == before.version


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ({}, 'matchExpressions[0].operator: Invalid value: "": not a valid selector operator'),
        ({"key": "a", "operator": "in", "values": ["b"]}, 'operator: Invalid value: "in": not a valid selector operator'),
        ({"key": "a", "operator": "In"}, "values: Required value: must be specified when `operator` is 'In' or 'NotIn'"),
        ({"key": "a", "operator": "Exists", "values": ["b"]}, "values: Forbidden: may not be specified when `operator` is"),
        ({"key": "", "operator": "Exists"}, 'matchExpressions[0].key: Invalid value: "": name part must be non-empty'),
    ],
)  # fmt: skip
async def test_a_selector_that_selects_nothing_sensible_is_refused(api, expression, problem):
    spec = {"minAvailable": 1, "selector": {"matchExpressions": [expression]}}
    answer = await api.post(
        api.path("poddisruptionbudgets"), {"metadata": {"name": "b"}, "spec": spec}
    )
    assert answer.refusal == (422, "Invalid")
    assert problem in answer.body["message"]
