"""The sorts of PATCH."""

from __future__ import annotations

import pytest

from .cluster import APPLY, JSON_PATCH, MERGE, STRATEGIC


@pytest.fixture
async def path(api) -> str:
    await api.created(
        "configmaps",
        {"metadata": {"name": "cm", "labels": {"a": "1"}}, "data": {"x": "1", "y": "2"}},
    )
    return api.path("configmaps", "cm")


@pytest.mark.parametrize("type", [MERGE, STRATEGIC])
async def test_a_merge_patch_sets_and_removes(api, path, type):
    answer = await api.patch(path, {"data": {"x": None, "z": "3"}}, type)
    assert answer.status == 200
    assert answer.body["data"] == {"y": "2", "z": "3"}
    assert answer.meta["labels"] == {"a": "1"}


@pytest.mark.parametrize("type", [MERGE, STRATEGIC, JSON_PATCH])
async def test_a_patch_that_changes_nothing_is_not_written(api, path, type):
    before = await api.get(path)
    same = [{"op": "replace", "path": "/data/x", "value": "1"}]
    answer = await api.patch(path, same if type == JSON_PATCH else {"data": {"x": "1"}}, type)
    assert answer.body == before.body


@pytest.mark.parametrize(
    ("operations", "data"),
    [
        pytest.param([{"op": "add", "path": "/data/z", "value": "3"}], {"x": "1", "y": "2", "z": "3"}, id="add"),
        pytest.param([{"op": "add", "path": "/data/x", "value": "9"}], {"x": "9", "y": "2"}, id="add replaces"),
        pytest.param([{"op": "replace", "path": "/data/x", "value": "9"}], {"x": "9", "y": "2"}, id="replace"),
        pytest.param([{"op": "remove", "path": "/data/x"}], {"y": "2"}, id="remove"),
        pytest.param([{"op": "move", "from": "/data/x", "path": "/data/z"}], {"z": "1", "y": "2"}, id="move"),
        pytest.param([{"op": "copy", "from": "/data/x", "path": "/data/z"}], {"x": "1", "z": "1", "y": "2"}, id="copy"),
        pytest.param([{"op": "test", "path": "/data/x", "value": "1"}], {"x": "1", "y": "2"}, id="a test that passes"),
        pytest.param([{"op": "add", "path": "/data", "value": {"n": "1"}}], {"n": "1"}, id="a whole map"),
    ],
)  # fmt: skip
async def test_a_json_patch_applies(api, path, operations, data):
    answer = await api.patch(path, operations, JSON_PATCH)
    assert answer.status == 200, answer.body
    assert answer.body["data"] == data


async def test_a_json_pointer_escapes_slash_and_tilde(api, path):
    operations = [{"op": "add", "path": "/metadata/labels/hami.io~1a", "value": "1"}]
    answer = await api.patch(path, operations, JSON_PATCH)
    assert answer.meta["labels"] == {"a": "1", "hami.io/a": "1"}


@pytest.mark.parametrize(
    "operation",
    [
        pytest.param({"op": "test", "path": "/data/x", "value": "other"}, id="a test that fails"),
        pytest.param({"op": "remove", "path": "/data/none"}, id="removes what is not there"),
        pytest.param({"op": "add", "path": "/none/deep", "value": "1"}, id="a parent that is not there"),
        pytest.param({"op": "frob", "path": "/data/x"}, id="an unknown operation"),
        pytest.param({"op": "add", "path": "/metadata/annotations/x", "value": "1"}, id="into a map that is left out"),
        pytest.param({"op": "replace", "path": "/metadata/labels", "value": 5}, id="a wrong type"),
        pytest.param({"op": "add", "path": "/metadata/labels/q", "value": "_/"}, id="a wrong value"),
    ],
)  # fmt: skip
async def test_a_json_patch_that_does_not_apply_is_invalid(api, path, operation):
    before = await api.get(path)
    answer = await api.patch(path, [operation], JSON_PATCH)
    assert answer.refusal == (422, "Invalid")
    assert (await api.get(path)).body == before.body


async def test_all_operations_apply_or_none(api, path):
    operations = [
        {"op": "replace", "path": "/data/x", "value": "9"},
        {"op": "test", "path": "/data/y", "value": "other"},
    ]
    assert (await api.patch(path, operations, JSON_PATCH)).status == 422
    assert (await api.get(path)).body["data"] == {"x": "1", "y": "2"}


@pytest.mark.parametrize(
    ("body", "type"),
    [
        pytest.param(b"{", MERGE, id="half a merge patch"),
        pytest.param(b"[]", MERGE, id="a list as merge patch"),
        pytest.param(b"{}", JSON_PATCH, id="an object as JSON patch"),
        pytest.param(b"[1]", JSON_PATCH, id="an operation that is a number"),
    ],
)
async def test_what_is_no_patch_is_a_bad_request(api, path, body, type):
    assert (await api.call("PATCH", path, body, type)).refusal == (400, "BadRequest")


async def test_plain_json_is_no_patch(api, path):
    answer = await api.patch(path, {"data": {}}, "application/json")
    assert answer.refusal == (415, "UnsupportedMediaType")


async def test_a_patch_may_insist_on_a_version(api, path):
    before = (await api.get(path)).version
    first = await api.patch(path, {"metadata": {"resourceVersion": before}, "data": {"x": "3"}})
    assert first.status == 200
    second = await api.patch(path, {"metadata": {"resourceVersion": before}, "data": {"x": "4"}})
    assert second.refusal == (409, "Conflict")


@pytest.mark.parametrize(
    ("patch", "refusal"),
    [
        pytest.param({"metadata": {"name": "other"}}, (400, "BadRequest"), id="the name"),
        pytest.param({"metadata": {"uid": "other"}}, (422, "Invalid"), id="the uid"),
        pytest.param({"metadata": {"annotations": {"a": 1}}}, (422, "Invalid"), id="a number for a text"),
    ],
)  # fmt: skip
async def test_a_patch_cannot_make_another_object(api, path, patch, refusal):
    assert (await api.patch(path, patch)).refusal == refusal


async def test_what_does_not_exist_cannot_be_patched(api):
    answer = await api.patch(api.path("configmaps", "none"), {})
    assert answer.refusal == (404, "NotFound")


async def test_a_strategic_patch_merges_lists_by_their_key(api):
    await api.pod("p")
    path = api.path("pods", "p", "status")
    ready = {"type": "Ready", "status": "True"}
    await api.patch(path, {"status": {"conditions": [ready]}}, STRATEGIC)
    other = {"type": "Other", "status": "False"}
    answer = await api.patch(path, {"status": {"conditions": [other]}}, STRATEGIC)
    types = {c["type"]: c["status"] for c in answer.body["status"]["conditions"]}
    assert types == {"Ready": "True", "Other": "False"}


async def test_a_strategic_patch_deletes_an_entry_by_its_key(api):
    await api.pod("p")
    path = api.path("pods", "p", "status")
    conditions = [{"type": "A", "status": "True"}, {"type": "B", "status": "True"}]
    await api.patch(path, {"status": {"conditions": conditions}}, STRATEGIC)
    gone = {"status": {"conditions": [{"type": "A", "$patch": "delete"}]}}
    answer = await api.patch(path, gone, STRATEGIC)
    assert [c["type"] for c in answer.body["status"]["conditions"]] == ["B"]


async def test_a_merge_patch_replaces_lists(api):
    await api.pod("p")
    path = api.path("pods", "p", "status")
    await api.patch(path, {"status": {"conditions": [{"type": "A", "status": "True"}]}})
    answer = await api.patch(path, {"status": {"conditions": [{"type": "B", "status": "True"}]}})
    assert [c["type"] for c in answer.body["status"]["conditions"]] == ["B"]


async def test_a_strategic_patch_changes_one_container(api):
    await api.pod("p")
    patch = {"spec": {"containers": [{"name": "c", "image": "busybox:2"}]}}
    answer = await api.patch(api.path("pods", "p"), patch, STRATEGIC)
    assert answer.status == 200
    assert answer.body["spec"]["containers"][0]["image"] == "busybox:2"
    assert answer.meta["generation"] == 2


def applied(labels: str) -> bytes:
    return (
        f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: ap, labels: {labels}}}\n"
        "data: {a: '1'}\n"
    ).encode()


async def test_server_side_apply_creates(api):
    answer = await api.patch(
        api.path("configmaps", "ap"), applied("{x: z}"), APPLY, fieldManager="me"
    )
    assert answer.status == 201
    assert answer.body["data"] == {"a": "1"}


async def test_server_side_apply_takes_back_what_it_no_longer_says(api):
    path = api.path("configmaps", "ap")
    await api.patch(path, applied("{x: z}"), APPLY, fieldManager="me")
    await api.patch(path, {"metadata": {"labels": {"other": "s"}}})
    answer = await api.patch(path, applied("{z: x}"), APPLY, fieldManager="me")
    assert answer.status == 200
    assert answer.meta["labels"] == {"z": "x", "other": "s"}


async def test_server_side_apply_needs_a_field_manager(api):
    answer = await api.patch(api.path("configmaps", "ap"), applied("{x: z}"), APPLY)
    assert answer.refusal == (422, "Invalid")


async def test_a_strategic_patch_finds_a_services_port_by_its_number(api):
    """A container's are found by ``containerPort``."""
    ports = [{"name": "a", "port": 80}, {"name": "b", "port": 81}]
    await api.created("services", {"metadata": {"name": "s"}, "spec": {"ports": ports}})
    patch = {"spec": {"ports": [{"port": 81, "name": "c"}]}}
    answer = await api.patch(api.path("services", "s"), patch, STRATEGIC)
    names = {port["port"]: port["name"] for port in answer.body["spec"]["ports"]}
    assert names == {80: "a", 81: "c"}
