"""JSON patches, applied by a reference of RFC 6902 to pods with fields that we do not read."""

from __future__ import annotations

import copy

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hami.domain.kubernetes.objects import Container, EnvVar, Pod, PodSpec, Resources
from hami.wire.json_patch import json_patch

GPU = "nvidia.com/gpu"


def apply(document, operations):
    """RFC 6902 as far as ``add``, ``replace`` and ``remove`` go; strict about what must exist."""
    document = copy.deepcopy(document)
    for operation in operations:
        *parents, last = [
            token.replace("~1", "/").replace("~0", "~")
            for token in operation["path"].removeprefix("/").split("/")
        ]
        target = document
        for token in parents:
            target = target[int(token)] if isinstance(target, list) else target[token]
        op = operation["op"]
        if isinstance(target, list):
            if op == "add":
                target.insert(len(target) if last == "-" else int(last), operation["value"])
            else:
                assert op == "replace"
                target[int(last)] = operation["value"]
        elif op == "add":
            target[last] = operation["value"]
        else:
            assert last in target, f"{operation['path']} does not exist"
            if op == "replace":
                target[last] = operation["value"]
            else:
                del target[last]
    return document


def lean(document):
    return msgspec.convert(document, Pod)


def a_pod(metadata=None, **container):
    """JSON of a pod with one container ``c`` beside fields that we do not read."""
    return {
        "kind": "Pod",
        "metadata": {"name": "p", "finalizers": ["x"], **(metadata or {})},
        "spec": {
            "volumes": [{"name": "v"}],
            "containers": [{"name": "c", "image": "i", **container}],
        },
    }


def with_env(*variables):
    return [EnvVar(name=name, value=value) for name, value in variables]


def changed(pod, *, metadata=None, spec=None, container=None):
    """The pod with these fields replaced, in its metadata, spec or first container."""
    replace = msgspec.structs.replace
    containers = [replace(pod.spec.containers[0], **(container or {})), *pod.spec.containers[1:]]
    return replace(
        pod,
        metadata=replace(pod.metadata, **(metadata or {})),
        spec=replace(pod.spec, **{"containers": containers, **(spec or {})}),
    )


def resources(**maps):
    return {"resources": Resources(**maps)}


@pytest.mark.parametrize(
    ("before", "change", "patch"),
    [
        pytest.param(a_pod(), {}, [], id="nothing"),
        pytest.param(a_pod(), {"spec": {"scheduler_name": "hami-scheduler"}},
                     [{"op": "add", "path": "/spec/schedulerName", "value": "hami-scheduler"}],
                     id="a scheduler"),
        pytest.param(a_pod(), {"spec": {"runtime_class_name": "nvidia"}},
                     [{"op": "add", "path": "/spec/runtimeClassName", "value": "nvidia"}],
                     id="a runtime class"),
        pytest.param(a_pod(), {"metadata": {"annotations": {"a/b": "1"}}},
                     [{"op": "add", "path": "/metadata/annotations", "value": {"a/b": "1"}}],
                     id="the first annotation brings the map"),
        pytest.param(a_pod({"annotations": None}), {"metadata": {"annotations": {"a": "1"}}},
                     [{"op": "add", "path": "/metadata/annotations", "value": {"a": "1"}}],
                     id="a null map is no map"),
        pytest.param(a_pod({"annotations": {"x~y/z": "1", "b": "1", "c": "1"}}),
                     {"metadata": {"annotations": {"x~y/z": "2", "c": "1", "d": "1"}}},
                     [{"op": "remove", "path": "/metadata/annotations/b"},
                      {"op": "replace", "path": "/metadata/annotations/x~0y~1z", "value": "2"},
                      {"op": "add", "path": "/metadata/annotations/d", "value": "1"}],
                     id="annotations one by one, with ~ and / escaped"),
        pytest.param(a_pod(), {"container": resources(limits={GPU: "1"})},
                     [{"op": "add", "path": "/spec/containers/0/resources",
                       "value": {"limits": {GPU: "1"}}}],
                     id="the first limit brings its parents"),
        pytest.param(a_pod(resources={}), {"container": resources(limits={GPU: "1"})},
                     [{"op": "add", "path": "/spec/containers/0/resources/limits",
                       "value": {GPU: "1"}}],
                     id="limits in resources without any"),
        pytest.param(a_pod(resources={"limits": {"cpu": "1"}, "claims": [{"name": "x"}]}),
                     {"container": resources(limits={"cpu": "1", GPU: "1"}, requests={GPU: "1"})},
                     [{"op": "add", "path": "/spec/containers/0/resources/limits/nvidia.com~1gpu",
                       "value": "1"},
                      {"op": "add", "path": "/spec/containers/0/resources/requests",
                       "value": {GPU: "1"}}],
                     id="a limit beside others"),
        pytest.param(a_pod(resources={"limits": {GPU: "1"}}), {"container": {"resources": None}},
                     [{"op": "remove",
                       "path": "/spec/containers/0/resources/limits/nvidia.com~1gpu"}],
                     id="resources taken away"),
        pytest.param(a_pod(), {"container": {"env": with_env(("A", "1"))}},
                     [{"op": "add", "path": "/spec/containers/0/env",
                       "value": [{"name": "A", "value": "1"}]}],
                     id="the first variable brings the list"),
        pytest.param(a_pod(env=[]), {"container": {"env": with_env(("A", "1"))}},
                     [{"op": "add", "path": "/spec/containers/0/env/-",
                       "value": {"name": "A", "value": "1"}}],
                     id="a variable in an empty list"),
        pytest.param(a_pod(env=[{"name": "A", "valueFrom": {}}, {"name": "B", "value": "1"}]),
                     {"container": {"env": with_env(("A", ""), ("B", "2"), ("C", "3"))}},
                     [{"op": "replace", "path": "/spec/containers/0/env/1",
                       "value": {"name": "B", "value": "2"}},
                      {"op": "add", "path": "/spec/containers/0/env/-",
                       "value": {"name": "C", "value": "3"}}],
                     id="variables in place and at the end, others untouched"),
        pytest.param(a_pod(env=[{"name": "A", "valueFrom": {}}]),
                     {"container": {"env": with_env(("A", "1"))}},
                     [{"op": "replace", "path": "/spec/containers/0/env/0",
                       "value": {"name": "A", "value": "1"}}],
                     id="a value takes the place of valueFrom"),
    ],
)  # fmt: skip
def test_changes_only_what_differs(before, change, patch):
    after = changed(lean(before), **change)
    assert json_patch(lean(before), after) == patch


def test_init_containers_have_their_own_paths():
    before = a_pod()
    before["spec"]["initContainers"] = [{"name": "i"}, {"name": "j"}]
    pod = lean(before)
    inits = [pod.spec.init_containers[0], Container(name="j", env=with_env(("A", "1")))]
    assert [
        op["path"] for op in json_patch(pod, changed(pod, spec={"init_containers": inits}))
    ] == ["/spec/initContainers/1/env"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param({"spec": {"containers": []}}, r"/spec/containers: .* \['c'\] became \[\]",
                     id="a container gone"),
        pytest.param({"container": {"name": "d"}}, "/spec/containers: .* rename", id="renamed"),
        pytest.param({"spec": {"init_containers": [Container(name="i")]}}, "/spec/initContainers: ",
                     id="an init container more"),
        pytest.param({"container": {"env": with_env(("B", ""))}}, "/spec/containers/0/env: ",
                     id="another variable in its place"),
        pytest.param({"container": {"env": None}}, "/spec/containers/0/env: ", id="a lost one"),
    ],
)  # fmt: skip
def test_refuses_changes_that_admission_never_makes(change, message):
    pod = lean(a_pod(env=[{"name": "A", "value": "1"}]))
    with pytest.raises(ValueError, match=message):
        json_patch(pod, changed(pod, **change))


names = st.sampled_from(["cpu", GPU, "nvidia.com/gpumem", "a~b", "~1", "x/~/y", ""])
texts = st.sampled_from(["0", "1", "2k", ""])
maps = st.none() | st.dictionaries(names, texts, max_size=4)
variables = st.lists(
    st.one_of(
        st.fixed_dictionaries({"name": names, "value": texts}),
        st.fixed_dictionaries({"name": names, "valueFrom": st.just({"fieldRef": {}})}),
    ),
    max_size=3,
)
containers = st.fixed_dictionaries(
    {"name": st.just("c"), "image": st.just("i")},
    optional={
        "env": st.none() | variables,
        "resources": st.none()
        | st.fixed_dictionaries(
            {}, optional={"limits": maps, "requests": maps, "claims": st.just([])}
        ),
    },
)
pods = st.fixed_dictionaries(
    {
        "metadata": st.fixed_dictionaries({"name": st.just("p")}, optional={"annotations": maps}),
        "spec": st.fixed_dictionaries(
            {"containers": st.lists(containers, min_size=2, max_size=2)},
            optional={
                "initContainers": st.lists(containers, min_size=1, max_size=1),
                "schedulerName": texts,
                "runtimeClassName": st.none() | st.sampled_from(["nvidia", "runc"]),
                "nodeName": texts,
            },
        ),
    }
)


@st.composite
def admitted(draw, pod):
    """What admission could make of a pod."""
    replace = msgspec.structs.replace

    def container(old):
        env = [
            replace(e, value=draw(texts)) if draw(st.booleans()) else e for e in old.env or ()
        ] + draw(st.lists(st.builds(EnvVar, name=names, value=texts), max_size=2))
        made = Resources(limits=draw(maps), requests=draw(maps))
        return replace(old, env=env or None, resources=draw(st.sampled_from([made, None])))

    inits = pod.spec.init_containers
    return replace(
        pod,
        metadata=replace(pod.metadata, annotations=draw(maps)),
        spec=replace(
            pod.spec,
            scheduler_name=draw(texts),
            runtime_class_name=draw(st.sampled_from([None, "nvidia", "kata"])),
            containers=[container(c) for c in pod.spec.containers],
            init_containers=None if inits is None else [container(c) for c in inits],
        ),
    )


def meaning(pod):
    """What a pod says, with absent, null and empty as one."""

    def env(container):
        return [(e.name, e.value) for e in container.env or ()]

    return (
        pod.spec.scheduler_name,
        pod.spec.runtime_class_name or "",
        pod.spec.node_name,
        dict(pod.annotations),
        [(c.name, k, dict(c.limits), dict(c.requests), env(c)) for c, k in pod.each_container()],
    )


@given(pods, st.data())
def test_the_patched_pod_is_the_admitted_one(before, data):
    after = data.draw(admitted(lean(before)))
    patched = apply(before, json_patch(lean(before), after))
    assert meaning(lean(patched)) == meaning(after)
    assert json_patch(lean(patched), after) == []


def everything_else(document):
    """The fields of a pod that admission has no business with."""
    containers = document["spec"]["containers"] + document["spec"].get("initContainers", [])
    return [
        document["metadata"]["name"],
        document["spec"].get("nodeName"),
        [(c["name"], c["image"], (c.get("resources") or {}).get("claims")) for c in containers],
    ]


@given(pods, st.data())
def test_fields_that_we_do_not_read_stay(before, data):
    after = data.draw(admitted(lean(before)))
    patched = apply(before, json_patch(lean(before), after))
    assert everything_else(patched) == everything_else(before)
    for old, new in zip(before["spec"]["containers"], patched["spec"]["containers"], strict=True):
        kept = zip(old.get("env") or (), new.get("env") or (), strict=False)
        assert all(a == b for a, b in kept if "valueFrom" in b)


@given(pods)
def test_a_pod_that_does_not_change_needs_no_patch(pod):
    assert json_patch(lean(pod), lean(pod)) == []


def test_an_empty_pod_needs_no_patch():
    assert json_patch(Pod(), Pod(spec=PodSpec())) == []
