"""ResourceQuota: what is refused at creation, and what is counted afterwards."""

from __future__ import annotations

from typing import Any

import pytest

from .cluster import a_pod


async def quota(api, name: str = "q", **hard: Any) -> Any:
    """A quota, once the controller has looked at it."""
    await api.created("resourcequotas", {"metadata": {"name": name}, "spec": {"hard": hard}})
    return await api.eventually(
        lambda: api.get(api.path("resourcequotas", name)),
        lambda answer: "hard" in answer.body["status"],
    )


async def used(api, name: str = "q", **expected: str) -> None:
    """Wait until the quota says so."""
    await api.eventually(
        lambda: api.get(api.path("resourcequotas", name)),
        lambda answer: {
            key: answer.body["status"]["used"].get(key) for key in expected
        } == expected,
    )  # fmt: skip


GPU = "requests.nvidia.com/gpu"
MEMORY = "limits.nvidia.com/gpumem"


async def test_any_key_is_kept_and_its_quantity_rewritten(api):
    hard = {GPU: 2, MEMORY: "3000", "limits.nvidia.com/gpu": "4", "nvidia.com/gpumem": "8000"}
    found = await quota(api, **hard)
    rewritten = {GPU: "2", MEMORY: "3k", "limits.nvidia.com/gpu": "4", "nvidia.com/gpumem": "8k"}
    assert found.body["spec"]["hard"] == rewritten
    assert found.body["status"]["hard"] == rewritten


async def test_the_controller_counts_requests_alone(api):
    found = await quota(api, **{GPU: 2, MEMORY: "3000", "pods": 5})
    assert found.body["status"]["used"] == {GPU: "0", "pods": "0"}


async def test_a_status_is_the_controllers_from_the_start(api):
    body = {
        "metadata": {"name": "q"},
        "spec": {"hard": {"pods": 1}},
        "status": {"used": {"pods": 9}},
    }
    created = await api.created("resourcequotas", body)
    assert created.body["status"] == {} or created.body["status"]["used"] == {"pods": "0"}


async def test_a_pod_over_the_quota_is_refused_with_the_numbers(api):
    await quota(api, **{GPU: 1})
    await api.pod("a", limits={"nvidia.com/gpu": 1})
    answer = await api.post(api.path("pods"), a_pod("b", limits={"nvidia.com/gpu": 1}))
    assert answer.refusal == (403, "Forbidden")
    assert answer.message == (
        f'pods "b" is forbidden: exceeded quota: q, requested: {GPU}=1, used: {GPU}=1, '
        f"limited: {GPU}=1"
    )
    assert answer.body["details"] == {"name": "b", "kind": "pods"}


async def test_limits_of_an_extended_resource_refuse_nobody(api):
    await quota(api, **{MEMORY: "1000", "limits.nvidia.com/gpu": "0"})
    await api.pod("a", limits={"nvidia.com/gpu": 1, "nvidia.com/gpumem": 5000})


async def test_every_quota_of_the_namespace_counts(api):
    await quota(api, "big", pods=10)
    await quota(api, "small", **{GPU: 0})
    answer = await api.post(api.path("pods"), a_pod("a", limits={"nvidia.com/gpu": 1}))
    assert answer.refusal == (403, "Forbidden")
    assert "exceeded quota: small" in answer.message


async def test_several_keys_are_named_together(api):
    await quota(api, cpu="1", memory="1Gi")
    answer = await api.post(api.path("pods"), a_pod("a", limits={"cpu": "1500m", "memory": "2Gi"}))
    assert answer.message == (
        'pods "a" is forbidden: exceeded quota: q, requested: cpu=1500m,memory=2Gi, '
        "used: cpu=0,memory=0, limited: cpu=1,memory=1Gi"
    )


async def test_a_quota_on_cpu_wants_every_container_to_say(api):
    await quota(api, cpu="1", **{"limits.memory": "1Gi"})
    answer = await api.post(api.path("pods"), a_pod("a"))
    assert answer.refusal == (403, "Forbidden")
    assert answer.message == (
        'pods "a" is forbidden: failed quota: q: must specify cpu for: c; limits.memory for: c'
    )


async def test_what_is_used_follows_the_pods(api):
    await quota(api, **{GPU: 4, "pods": 4, "cpu": "4"})
    await api.pod("a", limits={"nvidia.com/gpu": 2, "cpu": "500m"})
    await api.pod("b", limits={"nvidia.com/gpu": 1, "cpu": "250m"})
    await used(api, **{GPU: "3", "pods": "2", "cpu": "750m"})
    await api.delete(api.path("pods", "a"))
    await used(api, **{GPU: "1", "pods": "1", "cpu": "250m"})


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_a_pod_that_has_ended_uses_nothing(api, phase):
    await quota(api, **{GPU: 1})
    await api.pod("a", limits={"nvidia.com/gpu": 1})
    await used(api, **{GPU: "1"})
    await api.bound("a")
    await api.set_status("a", phase=phase)
    await used(api, **{GPU: "0"})
    # A real API server admits by its own copy of the quotas, which may be a moment behind.
    pod = a_pod("b", limits={"nvidia.com/gpu": 1})
    await api.eventually(lambda: api.post(api.path("pods"), pod))


async def test_init_containers_count_by_their_peak(api):
    await quota(api, **{GPU: 9})
    init = {"name": "i", "image": "b:1", "resources": {"limits": {"nvidia.com/gpu": 3}}}
    sidecar = {
        **init,
        "name": "s",
        "restartPolicy": "Always",
        "resources": {"limits": {"nvidia.com/gpu": 1}},
    }
    await api.pod("a", limits={"nvidia.com/gpu": 2}, initContainers=[sidecar, init])
    # The sidecar runs beside the init container (1 + 3) and beside the app (1 + 2).
    await used(api, **{GPU: "4"})


async def test_existing_pods_count_when_a_quota_comes(api):
    await api.pod("a", limits={"nvidia.com/gpu": 2})
    await quota(api, **{GPU: 1})
    await used(api, **{GPU: "2"})
    assert (
        await api.post(api.path("pods"), a_pod("b", limits={"nvidia.com/gpu": 1}))
    ).status == 403
    await api.pod("c")


async def test_a_higher_limit_is_published_and_lets_in(api):
    await quota(api, **{GPU: 0})
    await api.patch(api.path("resourcequotas", "q"), {"spec": {"hard": {GPU: 1}}})
    await api.eventually(
        lambda: api.get(api.path("resourcequotas", "q")),
        lambda answer: answer.body["status"]["hard"] == {GPU: "1"},
    )
    await api.eventually(
        lambda: api.post(api.path("pods"), a_pod("a", limits={"nvidia.com/gpu": 1}))
    )


async def test_what_others_count_stays(api):
    await quota(api, **{GPU: 2, MEMORY: "3000"})
    path = api.path("resourcequotas", "q", "status")
    written = await api.patch(path, {"status": {"used": {MEMORY: "2000"}}})
    assert written.body["status"]["used"][MEMORY] == "2k"
    await api.pod("a", limits={"nvidia.com/gpu": 1, "nvidia.com/gpumem": 1000})
    await used(api, **{GPU: "1", MEMORY: "2k"})
    await api.delete(api.path("pods", "a"))
    await used(api, **{GPU: "0", MEMORY: "2k"})
    await api.patch(api.path("resourcequotas", "q"), {"spec": {"hard": {MEMORY: "5000"}}})
    await api.eventually(
        lambda: api.get(api.path("resourcequotas", "q")),
        lambda answer: answer.body["status"]["hard"][MEMORY] == "5k",
    )
    await used(api, **{GPU: "0", MEMORY: "2k"})


async def test_what_others_counted_goes_with_its_limit(api):
    await quota(api, **{GPU: 2, MEMORY: "3000"})
    await api.patch(api.path("resourcequotas", "q", "status"), {"status": {"used": {MEMORY: "2k"}}})
    await api.patch(api.path("resourcequotas", "q"), {"spec": {"hard": {MEMORY: None}}})
    await api.eventually(
        lambda: api.get(api.path("resourcequotas", "q")),
        lambda answer: answer.body["status"]["used"] == {GPU: "0"},
    )


async def test_objects_are_counted(api):
    there = len((await api.get(api.path("configmaps"))).names)
    await quota(api, **{"count/configmaps": there + 1})
    await used(api, **{"count/configmaps": str(there)})
    await api.config_map("a")
    answer = await api.post(api.path("configmaps"), {"metadata": {"name": "b"}})
    assert answer.refusal == (403, "Forbidden")
    assert "exceeded quota: q, requested: count/configmaps=1" in answer.message


async def test_a_dry_run_is_refused_and_counts_nothing(api):
    await quota(api, **{GPU: 1})
    await api.created("pods", a_pod("a", limits={"nvidia.com/gpu": 1}), dryRun="All")
    await api.pod("b", limits={"nvidia.com/gpu": 1})
    answer = await api.post(
        api.path("pods"), a_pod("c", limits={"nvidia.com/gpu": 1}), dryRun="All"
    )
    assert answer.status == 403


async def test_a_quota_for_the_best_effort_counts_those_alone(api):
    body = {"metadata": {"name": "q"}, "spec": {"hard": {"pods": 1}, "scopes": ["BestEffort"]}}
    await api.created("resourcequotas", body)
    await api.eventually(
        lambda: api.get(api.path("resourcequotas", "q")),
        lambda answer: "used" in answer.body["status"],
    )
    await api.pod("a")
    assert (await api.post(api.path("pods"), a_pod("b"))).status == 403
    await api.pod("c", limits={"cpu": "1"})
    await used(api, pods="1")


@pytest.mark.parametrize(
    ("hard", "refusal"),
    [
        pytest.param({"pods": "-1"}, (422, "Invalid"), id="negative"),
        pytest.param({"frob": "1"}, (422, "Invalid"), id="no domain"),
        pytest.param({"pods": "many"}, (400, "BadRequest"), id="no quantity"),
    ],
)
async def test_a_quota_is_checked(api, hard, refusal):
    body = {"metadata": {"name": "q"}, "spec": {"hard": hard}}
    assert (await api.post(api.path("resourcequotas"), body)).refusal == refusal
