"""The types that the embedded API server has of Kubernetes' OpenAPI definitions."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hami_lab.api.objects.kinds import builtin_kinds
from hami_lab.api.objects.refusals import Refusal
from hami_lab.api.patches.documents import DoesNotApply, json_patch
from hami_lab.api.typed.conforming import WrongType, conform
from hami_lab.api.typed.types import CUSTOM, KINDS, Leaf, type_of
from hypothesis import given
from hypothesis import strategies as st

POD = KINDS["v1 Pod"]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda parts: st.lists(parts, max_size=3) | st.dictionaries(st.sampled_from(
        ["metadata", "spec", "status", "containers", "name", "labels", "resources", "limits", "a"]
    ), parts, max_size=4),
    max_leaves=20,
)  # fmt: skip


@pytest.mark.parametrize(
    "kind", list(builtin_kinds()), ids=lambda kind: f"{kind.group}/{kind.kind}"
)
def test_every_kind_that_is_served_has_its_types(kind):
    assert "metadata" in type_of(kind).fields
    assert type_of(kind) is not CUSTOM


def test_a_field_has_the_type_that_the_definitions_say():
    spec = POD.fields["spec"].fields
    assert spec["nodeName"] == Leaf("text")
    assert spec["priority"] == Leaf("int32")
    assert spec["containers"].merge == "name"
    assert spec["tolerations"].merge == ""


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"priority": "1"}, "cannot unmarshal string into Go struct field PodSpec.spec.priority of type int32"),
        ({"priority": True}, "cannot unmarshal bool into Go struct field PodSpec.spec.priority of type int32"),
        ({"priority": 1.0}, "cannot unmarshal number into Go struct field PodSpec.spec.priority of type int32"),
        ({"nodeSelector": {"a": 1}}, "cannot unmarshal number into Go struct field PodSpec.spec.nodeSelector of type string"),
        ({"containers": {}}, "cannot unmarshal object into Go struct field PodSpec.spec.containers of type []v1.Container"),
        ({"affinity": []}, "cannot unmarshal array into Go struct field PodSpec.spec.affinity of type v1.Affinity"),
        ({"volumes": [{"hostPath": {"path": 1}}]}, "field HostPathVolumeSource.spec.volumes.hostPath.path of type string"),
    ],
)  # fmt: skip
def test_a_wrong_type_is_named(spec, problem):
    with pytest.raises(WrongType) as caught:
        conform(POD, {"spec": spec})
    assert problem in str(caught.value)


def test_nulls_go_and_unknown_fields_stay():
    body: dict[str, Any] = {"spec": {"nodeName": None, "unheard": {"of": None}}, "extra": 1}
    conform(POD, body)
    assert body == {"spec": {"unheard": {"of": None}}, "extra": 1}


@given(JSON)
def test_whatever_comes_conforms_or_is_refused(body):
    if not isinstance(body, dict):
        return
    try:
        conform(POD, body)
    except WrongType:
        return
    again = {**body}
    conform(POD, again)
    assert again == body


POINTERS = st.sampled_from(
    ["", "/", "/a", "/a/0", "/a/-", "/a/b", "/spec/containers/0", "x", "/a~2"]
) | st.text(max_size=4)
OPERATIONS = st.lists(
    st.fixed_dictionaries({}, optional={
        "op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test", "other"]) | JSON,
        "path": POINTERS | JSON, "from": POINTERS | JSON, "value": JSON,
    }) | JSON,
    max_size=4,
)  # fmt: skip


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "remove", "path": "/a/0"},
        {"op": "move", "from": "/a/0", "path": "/b"},
        {"op": "copy", "from": 7, "path": "/b"},
    ],
)
def test_a_path_into_a_text_does_not_apply(operation):
    with pytest.raises(DoesNotApply):
        json_patch({"a": "text"}, [operation])


@given(JSON, OPERATIONS | JSON)
def test_whatever_patch_comes_applies_or_is_refused(body, operations):
    if not isinstance(body, dict):
        return
    with suppress(Refusal, DoesNotApply):
        json_patch(body, operations)
