"""How objects go: at once, gracefully, or when their finalizers allow."""

from __future__ import annotations

import pytest


async def test_a_deleted_object_is_gone(api):
    created = await api.config_map("cm")
    deleted = await api.delete(api.path("configmaps", "cm"))
    assert deleted.status == 200
    assert deleted.body["status"] == "Success"
    assert deleted.body["details"] == {
        "name": "cm", "kind": "configmaps", "uid": created.meta["uid"],
    }  # fmt: skip
    assert (await api.get(api.path("configmaps", "cm"))).status == 404


async def test_what_does_not_exist_cannot_be_deleted(api):
    assert (await api.delete(api.path("configmaps", "cm"))).refusal == (404, "NotFound")


@pytest.mark.parametrize(
    "precondition", [{"uid": "another"}, {"resourceVersion": "1"}], ids=["uid", "version"]
)
async def test_a_precondition_that_does_not_hold_is_a_conflict(api, precondition):
    await api.config_map("cm")
    answer = await api.delete(api.path("configmaps", "cm"), {"preconditions": precondition})
    assert answer.refusal == (409, "Conflict")
    assert (await api.get(api.path("configmaps", "cm"))).status == 200


async def test_a_precondition_that_holds_deletes(api):
    created = await api.config_map("cm")
    options = {"preconditions": {"uid": created.meta["uid"], "resourceVersion": created.version}}
    assert (await api.delete(api.path("configmaps", "cm"), options)).status == 200


async def test_a_dry_run_deletes_nothing(api):
    await api.config_map("cm")
    assert (await api.delete(api.path("configmaps", "cm"), dryRun="All")).status == 200
    assert (await api.get(api.path("configmaps", "cm"))).status == 200


async def test_an_object_with_finalizers_waits_for_them(api):
    await api.config_map("cm", finalizers=["hami.io/a", "hami.io/b"])
    path = api.path("configmaps", "cm")
    deleted = await api.delete(path)
    assert deleted.meta["deletionTimestamp"]
    assert deleted.meta["deletionGracePeriodSeconds"] == 0
    await api.patch(path, {"metadata": {"finalizers": ["hami.io/b"]}})
    assert (await api.get(path)).status == 200
    last = await api.patch(path, {"metadata": {"finalizers": None}})
    assert last.status == 200
    assert (await api.get(path)).status == 404


async def test_an_object_on_its_way_out_takes_no_new_finalizer(api):
    await api.config_map("cm", finalizers=["hami.io/a"])
    path = api.path("configmaps", "cm")
    await api.delete(path)
    answer = await api.patch(path, {"metadata": {"finalizers": ["hami.io/a", "hami.io/b"]}})
    assert answer.refusal == (422, "Invalid")
    await api.patch(path, {"metadata": {"finalizers": None}})


async def test_a_pod_without_a_node_goes_at_once(api):
    await api.pod("p")
    deleted = await api.delete(api.path("pods", "p"))
    assert deleted.body["kind"] == "Pod"
    assert deleted.meta["deletionGracePeriodSeconds"] == 0
    assert (await api.get(api.path("pods", "p"))).status == 404


async def test_a_pod_with_a_node_gets_its_grace(api):
    created = await api.pod("p", terminationGracePeriodSeconds=600)
    await api.bound("p")
    deleted = await api.delete(api.path("pods", "p"))
    assert deleted.meta["deletionGracePeriodSeconds"] == 600
    assert deleted.meta["deletionTimestamp"] > created.meta["creationTimestamp"]
    assert deleted.meta["generation"] == 2
    again = await api.delete(api.path("pods", "p"))
    assert again.version == deleted.version


async def test_grace_can_be_shortened_to_nothing(api):
    await api.pod("p", terminationGracePeriodSeconds=600)
    await api.bound("p")
    await api.delete(api.path("pods", "p"))
    shorter = await api.delete(api.path("pods", "p"), {"gracePeriodSeconds": 300})
    assert shorter.meta["deletionGracePeriodSeconds"] == 300
    last = await api.delete(api.path("pods", "p"), gracePeriodSeconds=0)
    assert last.meta["deletionGracePeriodSeconds"] == 0
    assert (await api.get(api.path("pods", "p"))).status == 404


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_a_pod_that_has_ended_goes_at_once(api, phase):
    await api.pod("p")
    await api.bound("p")
    await api.set_status("p", phase=phase)
    await api.delete(api.path("pods", "p"))
    assert (await api.get(api.path("pods", "p"))).status == 404


async def test_a_selector_deletes_many(api):
    for name, label in (("a", "1"), ("b", "1"), ("c", "2")):
        await api.config_map(name, labels={"g": label})
    deleted = await api.delete(api.path("configmaps"), labelSelector="g=1")
    assert deleted.status == 200
    left = await api.get(api.path("configmaps"), labelSelector="g")
    assert left.names == ["c"]


async def test_what_is_owned_goes_with_its_owner(api):
    owner = await api.config_map("owner")
    reference = {
        "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner.meta["uid"],
    }  # fmt: skip
    await api.config_map("owned", ownerReferences=[reference])
    await api.delete(api.path("configmaps", "owner"), propagationPolicy="Background")
    await api.eventually(
        lambda: api.get(api.path("configmaps", "owned")), lambda answer: answer.status == 404
    )


async def test_what_is_orphaned_stays(api):
    owner = await api.config_map("owner")
    reference = {
        "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner.meta["uid"],
    }  # fmt: skip
    await api.config_map("owned", ownerReferences=[reference])
    await api.delete(api.path("configmaps", "owner"), propagationPolicy="Orphan")
    await api.eventually(
        lambda: api.get(api.path("configmaps", "owner")), lambda answer: answer.status == 404
    )
    owned = await api.eventually(
        lambda: api.get(api.path("configmaps", "owned")),
        lambda answer: "ownerReferences" not in answer.meta,
    )
    assert owned.status == 200
