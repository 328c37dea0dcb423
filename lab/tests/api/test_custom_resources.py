"""A CustomResourceDefinition makes its resource available."""

from __future__ import annotations

import secrets

import pytest

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class Frobs:
    def __init__(self, api, group: str) -> None:
        self.group = group
        self.path = f"/apis/{group}/v1/namespaces/{api.namespace}/frobs"


@pytest.fixture
async def frobs(api):
    """``frobs`` in a group that only this test has."""
    found = Frobs(api, f"{secrets.token_hex(4)}.hami.io")
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1", "served": True, "storage": True, "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": schema},
    }  # fmt: skip
    names = {"plural": "frobs", "kind": "Frob", "shortNames": ["fr"]}
    spec = {"group": found.group, "scope": "Namespaced", "names": names, "versions": [version]}
    name = f"frobs.{found.group}"
    created = await api.post(CRDS, {"metadata": {"name": name}, "spec": spec})
    assert created.status == 201, created.body
    await api.eventually(
        lambda: api.get(f"{CRDS}/{name}"),
        lambda answer: any(
            c["type"] == "Established" and c["status"] == "True"
            for c in answer.body["status"].get("conditions") or ()
        ),
    )
    await api.eventually(lambda: api.get(found.path))
    yield found
    await api.delete(f"{CRDS}/{name}")


def a_frob(frobs, name: str = "f", **changes) -> dict:
    return {
        "apiVersion": f"{frobs.group}/v1",
        "kind": "Frob",
        "metadata": {"name": name},
        **changes,
    }


async def test_custom_objects_are_kept_as_they_are(api, frobs):
    created = await api.post(
        frobs.path, a_frob(frobs, spec={"size": 3000, "deep": {"a": [1, "b"]}})
    )
    assert created.status == 201
    assert created.body["spec"] == {"size": 3000, "deep": {"a": [1, "b"]}}
    assert created.meta["generation"] == 1
    assert (await api.get(f"{frobs.path}/f")).body == created.body


async def test_a_list_of_custom_objects_says_each_ones_kind(api, frobs):
    await api.post(frobs.path, a_frob(frobs))
    listed = await api.get(frobs.path)
    assert listed.body["kind"] == "FrobList"
    assert [item["kind"] for item in listed.body["items"]] == ["Frob"]


async def test_custom_objects_are_watched(api, frobs):
    since = (await api.get(frobs.path)).version
    async with api.watch(frobs.path, resourceVersion=since) as events:
        await api.post(frobs.path, a_frob(frobs))
        assert await events.take(1) == [("ADDED", "f")]


async def test_the_generation_counts_changes_of_the_spec(api, frobs):
    await api.post(frobs.path, a_frob(frobs, spec={"size": 1}))
    labelled = await api.patch(f"{frobs.path}/f", {"metadata": {"labels": {"a": "b"}}})
    assert labelled.meta["generation"] == 1
    resized = await api.patch(f"{frobs.path}/f", {"spec": {"size": 2}})
    assert resized.meta["generation"] == 2


async def test_the_status_is_written_apart(api, frobs):
    await api.post(frobs.path, a_frob(frobs, spec={"size": 1}))
    main = await api.patch(f"{frobs.path}/f", {"status": {"ready": True}})
    assert "status" not in main.body
    both = {"spec": {"size": 9}, "status": {"ready": True}, "metadata": {"labels": {"a": "b"}}}
    status = await api.patch(f"{frobs.path}/f/status", both)
    assert status.body["status"] == {"ready": True}
    assert status.body["spec"] == {"size": 1}
    assert "labels" not in status.meta


async def test_a_custom_object_is_not_replaced_without_a_version(api, frobs):
    await api.post(frobs.path, a_frob(frobs))
    answer = await api.put(f"{frobs.path}/f", a_frob(frobs, spec={"size": 2}))
    assert answer.refusal == (422, "Invalid")


async def test_there_is_no_strategic_patch_of_a_custom_object(api, frobs):
    await api.post(frobs.path, a_frob(frobs))
    answer = await api.patch(
        f"{frobs.path}/f", {"spec": {}}, "application/strategic-merge-patch+json"
    )
    assert answer.status == 415


async def test_the_group_is_discovered(api, frobs):
    resources = (await api.get(f"/apis/{frobs.group}/v1")).body["resources"]
    frob = next(r for r in resources if r["name"] == "frobs")
    assert (frob["kind"], frob["shortNames"]) == ("Frob", ["fr"])


async def test_the_resource_goes_with_its_definition(api, frobs):
    await api.post(frobs.path, a_frob(frobs))
    await api.delete(f"{CRDS}/frobs.{frobs.group}")
    await api.eventually(lambda: api.get(frobs.path), lambda answer: answer.status == 404)


async def test_a_definitions_name_is_its_resource(api):
    spec = {
        "group": "x.hami.io", "scope": "Namespaced", "names": {"plural": "frobs", "kind": "Frob"},
        "versions": [{"name": "v1", "served": True, "storage": True,
                      "schema": {"openAPIV3Schema": {"type": "object"}}}],
    }  # fmt: skip
    answer = await api.post(CRDS, {"metadata": {"name": "others.x.hami.io"}, "spec": spec})
    assert answer.refusal == (422, "Invalid")
