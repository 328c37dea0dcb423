"""Creating, reading and replacing objects, and what is refused."""

from __future__ import annotations

import pytest

from .cluster import a_pod


async def test_a_created_object_has_what_the_server_gives_it(api):
    created = await api.config_map("cm", labels={"a": "b"})
    assert created.body["kind"] == "ConfigMap"
    assert created.body["apiVersion"] == "v1"
    assert created.meta["namespace"] == api.namespace
    assert created.meta["labels"] == {"a": "b"}
    assert len(created.meta["uid"]) == 36
    assert int(created.version) > 0
    assert created.meta["creationTimestamp"].endswith("Z")


async def test_what_was_created_can_be_read(api):
    created = await api.config_map("cm")
    read = await api.get(api.path("configmaps", "cm"))
    assert read.status == 200
    assert read.body == created.body


async def test_what_the_server_decides_cannot_be_given(api):
    created = await api.config_map(
        "cm", uid="mine", creationTimestamp="2001-01-01T00:00:00Z", resourceVersion=""
    )
    assert created.meta["uid"] != "mine"
    assert not created.meta["creationTimestamp"].startswith("2001")


async def test_a_name_is_generated(api):
    created = await api.created("configmaps", {"metadata": {"generateName": "cm-"}})
    assert created.meta["name"].startswith("cm-")
    assert len(created.meta["name"]) == len("cm-") + 5
    assert created.meta["generateName"] == "cm-"


async def test_the_same_name_again_already_exists(api):
    await api.config_map("cm")
    again = await api.post(api.path("configmaps"), {"metadata": {"name": "cm"}})
    assert again.refusal == (409, "AlreadyExists")
    assert again.message == 'configmaps "cm" already exists'
    assert again.body["details"] == {"name": "cm", "kind": "configmaps"}


async def test_what_does_not_exist_is_not_found(api):
    answer = await api.get(api.path("leases", "none"))
    assert answer.refusal == (404, "NotFound")
    assert answer.message == 'leases.coordination.k8s.io "none" not found'
    assert answer.body["details"] == {
        "name": "none", "group": "coordination.k8s.io", "kind": "leases",
    }  # fmt: skip


async def test_an_unknown_resource_is_not_found(api):
    answer = await api.get(api.path("frobs"))
    assert answer.refusal == (404, "NotFound")
    assert answer.message == "the server could not find the requested resource"


@pytest.mark.parametrize("path", ["/nowhere", "/apis/frob.io/v1/frobs"])
async def test_an_unknown_path_is_not_found(api, path):
    assert (await api.get(path)).status == 404


@pytest.mark.parametrize(
    ("method", "rest"),
    [
        pytest.param("POST", ["a"], id="POST of one object"),
        pytest.param("PUT", [], id="PUT of all objects"),
        pytest.param("PATCH", [], id="PATCH of all objects"),
        pytest.param("GET", ["a", "binding"], id="GET of a binding"),
    ],
)
async def test_a_method_that_the_path_has_not_is_not_allowed(api, method, rest):
    body = None if method == "GET" else {"metadata": {"name": "a"}}
    answer = await api.call(method, api.path("pods", *rest), body)
    assert answer.status == 405


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"{", id="half"),
        pytest.param(b"[]", id="a list"),
        pytest.param(b'{"metadata": []}', id="metadata is a list"),
        pytest.param(b'{"metadata": {"name": 7}}', id="the name is a number"),
        pytest.param(b'{"metadata": {"name": "a", "labels": {"a": true}}}', id="a label is true"),
        pytest.param(b'{"metadata": {"name": "a", "annotations": {"a": 1}}}', id="an annotation is 1"),
        pytest.param(b'{"metadata": {"name": "a", "finalizers": "x"}}', id="finalizers is a text"),
        pytest.param(b'{"kind": "Node", "apiVersion": "v1", "metadata": {"name": "a"}}', id="another kind"),
        pytest.param(b'{"kind": "Pod", "apiVersion": "v2", "metadata": {"name": "a"}}', id="another version"),
        pytest.param(b'{"metadata": {"name": "a", "namespace": "elsewhere"}}', id="another namespace"),
        pytest.param(b'{"metadata": {"name": "a"}, "spec": {"containers": {}}}', id="containers is a map"),
        pytest.param(b'{"metadata": {"name": "a"}, "spec": {"containers": ["c"]}}', id="a container is a text"),
        pytest.param(b'{"metadata": {"name": "a"}, "spec": {"nodeName": 1}}', id="the node is a number"),
        pytest.param(b'{"metadata": {"name": "a"}, "spec": {"dnsConfig": {"options": [{"name": 1}]}}}', id="deep inside"),
        pytest.param(b'{"metadata": {"name": "a"}, "spec": {"priority": 2147483648}}', id="more than 32 bits"),
    ],
)  # fmt: skip
async def test_a_body_that_is_no_such_object_is_a_bad_request(api, body):
    answer = await api.call("POST", api.path("pods"), body)
    assert answer.refusal == (400, "BadRequest")


async def test_a_wrong_type_is_told_in_gos_words(api):
    containers = [{"name": "c", "image": 1}]
    answer = await api.post(
        api.path("pods"), {"metadata": {"name": "a"}, "spec": {"containers": containers}}
    )
    assert answer.body["message"] == (
        'Pod in version "v1" cannot be handled as a Pod: json: cannot unmarshal number into Go '
        "struct field Container.spec.containers.image of type string"
    )


async def test_a_null_in_a_map_is_an_empty_text(api):
    answer = await api.created(
        "configmaps", {"metadata": {"name": "a", "labels": {"x": None}, "annotations": None}}
    )
    assert answer.meta["labels"] == {"x": ""}
    assert "annotations" not in answer.meta


async def test_a_null_in_a_list_is_an_empty_object(api):
    answer = await api.post(
        api.path("pods"), {"metadata": {"name": "a"}, "spec": {"containers": [None]}}
    )
    assert answer.refusal == (422, "Invalid")
    assert "spec.containers[0].name: Required value" in answer.body["message"]


async def test_quantities_are_rewritten_wherever_they_stand(api):
    requests = {"resources": {"requests": {"storage": "1024Mi"}}, "accessModes": ["ReadWriteOnce"]}
    answer = await api.created(
        "persistentvolumeclaims", {"metadata": {"name": "a"}, "spec": requests}
    )
    assert answer.body["spec"]["resources"]["requests"] == {"storage": "1Gi"}


async def test_an_unknown_media_type_is_unsupported(api):
    answer = await api.call("POST", api.path("configmaps"), b"{}", "text/plain")
    assert answer.refusal == (415, "UnsupportedMediaType")


async def test_a_body_may_be_yaml(api):
    body = b"metadata:\n  name: cm\n  annotations: {when: '2026-01-01'}\ndata: {a: b}\n"
    answer = await api.call("POST", api.path("configmaps"), body, "application/yaml")
    assert answer.status == 201
    assert answer.body["data"] == {"a": "b"}


@pytest.mark.parametrize(
    ("metadata", "field"),
    [
        pytest.param({}, "metadata.name", id="no name"),
        pytest.param({"name": "A_b"}, "metadata.name", id="capitals and underscores"),
        pytest.param({"name": "-a"}, "metadata.name", id="begins with a dash"),
        pytest.param({"name": "a" * 254}, "metadata.name", id="too long"),
        pytest.param({"name": "a", "labels": {"k": "_/x"}}, "metadata.labels", id="a label's value"),
        pytest.param({"name": "a", "labels": {"k": "x" * 64}}, "metadata.labels", id="a long label"),
        pytest.param({"name": "a", "labels": {"-k": "x"}}, "metadata.labels", id="a label's key"),
        pytest.param({"name": "a", "annotations": {"a/b/c": "x"}}, "metadata.annotations", id="an annotation's key"),
        pytest.param({"name": "a", "annotations": {"k": "x" * 300_000}}, "metadata.annotations", id="long annotations"),
    ],
)  # fmt: skip
async def test_metadata_is_checked(api, metadata, field):
    answer = await api.post(api.path("configmaps"), {"metadata": metadata})
    assert answer.refusal == (422, "Invalid")
    assert field in answer.fields()


async def test_a_name_of_253_characters_is_fine(api):
    await api.config_map("a" * 253)


async def test_a_dry_run_changes_nothing(api):
    tried = await api.post(
        api.path("configmaps"), {"metadata": {"name": "cm"}, "data": {"a": "b"}}, dryRun="All"
    )
    assert tried.status == 201
    assert tried.body["data"] == {"a": "b"}
    assert "resourceVersion" not in tried.meta
    assert (await api.get(api.path("configmaps", "cm"))).status == 404


async def test_a_dry_run_of_an_update_changes_nothing(api):
    await api.config_map("cm")
    tried = await api.patch(api.path("configmaps", "cm"), {"data": {"a": "b"}}, dryRun="All")
    assert tried.body["data"] == {"a": "b"}
    assert "data" not in (await api.get(api.path("configmaps", "cm"))).body


async def test_there_is_but_one_sort_of_dry_run(api):
    answer = await api.post(api.path("configmaps"), {"metadata": {"name": "a"}}, dryRun="Some")
    assert answer.refusal == (422, "Invalid")


async def test_a_replaced_object_has_a_newer_version(api):
    created = await api.config_map("cm")
    body = {**created.body, "data": {"a": "b"}}
    replaced = await api.put(api.path("configmaps", "cm"), body)
    assert replaced.status == 200
    assert int(replaced.version) > int(created.version)
    assert replaced.meta["uid"] == created.meta["uid"]
    assert (await api.get(api.path("configmaps", "cm"))).body == replaced.body


async def test_a_stale_version_is_a_conflict(api):
    created = await api.config_map("cm")
    await api.patch(api.path("configmaps", "cm"), {"data": {"a": "b"}})
    answer = await api.put(api.path("configmaps", "cm"), created.body)
    assert answer.refusal == (409, "Conflict")
    assert answer.message == (
        'Operation cannot be fulfilled on configmaps "cm": the object has been modified; please '
        "apply your changes to the latest version and try again"
    )


async def test_without_a_version_a_replacement_always_wins(api):
    await api.config_map("cm")
    body = {"metadata": {"name": "cm"}, "data": {"a": "b"}}
    assert (await api.put(api.path("configmaps", "cm"), body)).status == 200


async def test_an_update_that_changes_nothing_is_not_written(api):
    created = await api.config_map("cm")
    again = await api.put(api.path("configmaps", "cm"), created.body)
    assert again.status == 200
    assert again.version == created.version


async def test_another_uid_is_another_object(api):
    created = await api.config_map("cm")
    body = {**created.body, "metadata": {"name": "cm", "uid": "another"}}
    answer = await api.put(api.path("configmaps", "cm"), body)
    assert answer.refusal == (409, "Conflict")
    assert "UID in precondition: another" in answer.message


async def test_the_name_must_be_that_of_the_path(api):
    await api.config_map("cm")
    answer = await api.put(api.path("configmaps", "cm"), {"metadata": {"name": "other"}})
    assert answer.refusal == (400, "BadRequest")


async def test_what_does_not_exist_cannot_be_replaced(api):
    answer = await api.put(api.path("configmaps", "cm"), {"metadata": {"name": "cm"}})
    assert answer.refusal == (404, "NotFound")


async def test_a_field_that_becomes_empty_is_left_out(api):
    await api.config_map("cm", labels={"a": "b"}, annotations={"c": "d"})
    emptied = {"metadata": {"labels": {"a": None}, "annotations": {"c": None}}}
    answer = await api.patch(api.path("configmaps", "cm"), emptied)
    assert not {"labels", "annotations"} & set(answer.meta)


async def test_a_body_may_not_be_huge(api):
    body = {"metadata": {"name": "cm"}, "data": {"a": "x" * (4 * 1024 * 1024)}}
    assert (await api.post(api.path("configmaps"), body)).status == 413


async def test_a_secrets_texts_are_encoded(api):
    body = {"metadata": {"name": "s"}, "stringData": {"a": "b"}, "data": {"c": "ZA=="}}
    created = await api.created("secrets", body)
    assert created.body["data"] == {"a": "Yg==", "c": "ZA=="}
    assert created.body["type"] == "Opaque"
    assert "stringData" not in created.body


async def test_the_status_of_a_pod_cannot_be_given_at_creation(api):
    body = {**a_pod("a"), "status": {"phase": "Running", "podIP": "10.0.0.1"}}
    created = await api.created("pods", body)
    assert created.body["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
