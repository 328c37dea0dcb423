"""The workload controllers: what they plan, and that pods come and go with their workloads."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from hami_lab.cluster.objects import AnyObject, apply, resource_of
from hami_lab.controllers import WorkloadControllers
from hami_lab.controllers.plans import (
    Owner,
    plan_deployment,
    plan_job,
    plan_replica_set,
    plan_stateful_set,
    template_hash,
)
from hami_lab.live import LivePod

from hami.kube.resources import PODS

from .embedded import a_container, a_server, eventually, running

TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"app": "a"}, "annotations": {"k": "v"}},
    "spec": {"containers": [a_container()], "restartPolicy": "Always"},
}


def an_owner(name: str = "w", *, status: dict[str, Any] | None = None, **spec: Any) -> Owner:
    body = {
        "metadata": {"name": name, "namespace": "ml", "uid": "u"},
        "spec": {"template": TEMPLATE, **spec},
    }
    return msgspec.convert(body | {"status": status}, Owner)


def pods(*phases: str) -> list[LivePod]:
    """``Running``, ``Succeeded`` ... by name p0, p1; ``deleted`` is on its way out."""
    return [
        msgspec.convert(
            {
                "metadata": {
                    "name": f"p{number}",
                    "namespace": "ml",
                    "creationTimestamp": f"2026-01-01T00:00:{number:02}Z",
                    "deletionTimestamp": "2026-01-01T00:00:00Z" if phase == "deleted" else None,
                },
                "spec": {"nodeName": "" if phase == "Pending" else "n"},
                "status": {"phase": phase},
            },
            LivePod,
        )
        for number, phase in enumerate(phases)
    ]


@pytest.mark.parametrize(
    ("spec", "there", "created", "deleted"),
    [
        pytest.param({"replicas": 3}, ["Running"], 2, [], id="missing ones are created"),
        pytest.param({}, [], 1, [], id="one by default"),
        pytest.param({"replicas": 0}, ["Running"], 0, ["p0"], id="none wanted"),
        pytest.param(
            {"replicas": 1}, ["Failed", "deleted"], 1, [], id="finished and leaving do not count"
        ),
        pytest.param(
            {"replicas": 1}, ["Running", "Pending"], 0, ["p1"], id="a waiting one goes first"
        ),
        pytest.param({"replicas": 1}, ["Running", "Running"], 0, ["p1"], id="then the youngest"),
    ],
)
def test_a_replica_set_keeps_its_number(spec, there, created, deleted):
    plan = plan_replica_set(an_owner(**spec), pods(*there))
    assert (len(plan.create), list(plan.delete)) == (created, deleted)


def test_a_pod_is_made_as_the_template_says_and_names_its_owner():
    (pod,) = plan_replica_set(an_owner(), []).create
    (reference,) = pod["metadata"]["ownerReferences"]
    assert (reference["kind"], reference["name"], reference["uid"]) == ("ReplicaSet", "w", "u")
    assert (pod["spec"], pod["metadata"]["annotations"]) == (TEMPLATE["spec"], {"k": "v"})
    assert pod["metadata"]["generateName"] == "w-"


def test_a_stateful_set_counts_from_zero_and_fills_gaps():
    plan = plan_stateful_set(an_owner("p", replicas=3), pods("Running"))
    assert [pod["metadata"]["name"] for pod in plan.create] == ["p-0", "p-1", "p-2"]
    assert plan.delete == ["p0"]


@pytest.mark.parametrize(
    ("spec", "there", "created", "condition"),
    [
        ({}, [], 1, None),
        ({}, ["Running"], 0, None),
        ({}, ["Succeeded"], 0, "Complete"),
        ({"completions": 5, "parallelism": 2}, ["Succeeded", "Running"], 1, None),
        ({"completions": 2, "parallelism": 2}, ["Succeeded", "Running"], 0, None),
        ({"suspend": True}, [], 0, None),
        ({"backoffLimit": 1}, ["Failed"], 1, None),
        ({"backoffLimit": 1}, ["Failed", "Failed"], 0, "Failed"),
    ],
)
def test_a_job_runs_until_it_is_complete_or_has_failed_too_often(spec, there, created, condition):
    plan = plan_job(an_owner(**spec), pods(*there))
    conditions = plan.status.get("conditions") or [{"type": None}]
    assert (len(plan.create), conditions[0]["type"]) == (created, condition)


def test_a_job_that_is_over_makes_nothing_any_more():
    over = {"conditions": [{"type": "Complete", "status": "True"}]}
    assert plan_job(an_owner(status=over, completions=9), []).create == ()


def test_a_deployment_has_one_set_for_its_template_and_scales_the_others_to_nothing():
    plan, scaled = plan_deployment(an_owner(replicas=2), [an_owner("w-old", replicas=2)])
    (made,) = plan.create
    assert made["metadata"]["name"] == f"w-{template_hash(TEMPLATE)}"
    assert made["spec"]["replicas"] == 2
    assert made["spec"]["template"]["metadata"]["labels"]["pod-template-hash"] == template_hash(
        TEMPLATE
    )
    assert scaled == {"w-old": 0}


@asynccontextmanager
async def controllers(folder):
    async with a_server(folder) as (_, client):
        problems: list[str] = []
        async with running(WorkloadControllers(client, on_problem=problems.append)):
            yield client
        assert problems == []


def a_workload(kind: str, **spec: Any) -> dict[str, Any]:
    template = TEMPLATE
    if kind == "Job":
        template = {**TEMPLATE, "spec": {**TEMPLATE["spec"], "restartPolicy": "Never"}}
    else:
        spec = {"selector": {"matchLabels": {"app": "a"}}, **spec}
    version = "batch/v1" if kind == "Job" else "apps/v1"
    body = {"spec": {"template": template, **spec}, "metadata": {"name": "w"}}
    return {"apiVersion": version, "kind": kind, **body}


async def count(client, wanted: int) -> list[AnyObject]:
    async def look():
        found = await client.list(PODS, namespace="default")
        return found if len(found) == wanted else None

    return await eventually(look, f"{wanted} pods")


@pytest.mark.parametrize("kind", ["Deployment", "ReplicaSet", "StatefulSet", "Job"])
async def test_pods_come_and_go_with_their_workload(tmp_path, kind):
    async with controllers(tmp_path) as client:
        size = {"parallelism": 3, "completions": 3} if kind == "Job" else {"replicas": 3}
        body = a_workload(kind, **size)
        await apply(client, body)
        await count(client, 3)
        resource = resource_of(body["apiVersion"], kind)
        if kind != "Job":
            await client.patch(resource, "w", {"spec": {"replicas": 1}}, namespace="default")
            await count(client, 1)
        await client.delete(resource, "w", namespace="default")
        await count(client, 0)


async def test_a_deployments_status_counts_its_pods(tmp_path):
    async with controllers(tmp_path) as client:
        await apply(client, a_workload("Deployment", replicas=2))

        async def counted():
            found = await client.get(resource_of("apps/v1", "Deployment"), "w", namespace="default")
            return found if (found.status or {}).get("replicas") == 2 else None

        found = await eventually(counted)
        assert found.status["unavailableReplicas"] == 2


async def test_a_new_template_replaces_the_pods(tmp_path):
    async with controllers(tmp_path) as client:
        body = a_workload("Deployment", replicas=2)
        await apply(client, body)
        first = {pod.name for pod in await count(client, 2)}
        body["spec"]["template"] = {**TEMPLATE, "metadata": {"labels": {"app": "a", "new": "yes"}}}
        await apply(client, body)

        async def replaced():
            found = {pod.name for pod in await client.list(PODS, namespace="default")}
            return found if len(found) == 2 and not found & first else None

        await eventually(replaced)
