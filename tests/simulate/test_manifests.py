"""Manifests into nodes, pods and quotas; and the one sentence for a manifest that is wrong."""

from __future__ import annotations

import json

import pytest

from hami.domain.errors import ConfigError
from hami.simulate.manifests import read_manifests

from .builders import a_container, a_node, a_pod, a_quota, a_workload, read


def in_yaml(text: str, kind: str = "Pod"):
    body = "spec: {containers: [{name: c}]}" if "spec:" not in text else ""
    return read_manifests([("w.yaml", f"kind: {kind}\n{text}\n{body}")])


def names(manifests) -> list[str]:
    return [pod.full_name for pod in manifests.pods]


@pytest.mark.parametrize(
    ("written", "text"),
    [
        pytest.param("3000", "3000", id="a whole number"),
        pytest.param("1.0", "1", id="a whole number with a point"),
        pytest.param("0.5", "0.5", id="a fraction"),
        pytest.param("1e3", "1000", id="an exponent"),
        pytest.param("3k", "3k", id="a suffix"),
        pytest.param('"8"', "8", id="a quoted number"),
    ],
)
def test_a_quantity_becomes_text(written, text):
    limits = f"spec: {{containers: [{{name: c, resources: {{limits: {{x: {written}}}}}}}]}}"
    manifests = in_yaml(f"metadata: {{name: a}}\n{limits}")
    assert manifests.pods[0].spec.containers[0].limits == {"x": text}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(
            "metadata: {name: a, annotations: {numa-bind: true}}",
            "w.yaml:1: Pod default/a: metadata.annotations[numa-bind] is true, not a text; the API "
            'server refuses it; write "true", with quotes',
            id="an unquoted boolean annotation",
        ),
        pytest.param(
            "metadata: {name: a, namespace: ml, labels: {size: 5}}",
            'Pod ml/a: metadata.labels[size] is 5, not a text; the API server refuses it; write "5"',
            id="an unquoted number as label",
        ),
        pytest.param(
            "metadata: {name: a}\nspec: {nodeSelector: {fast: {}}, containers: [{name: c}]}",
            "spec.nodeSelector[fast] is a mapping, not a text; the API server refuses it",
            id="a mapping in the node selector",
        ),
        pytest.param(
            "metadata: {name: a, annotations: 3}",
            "metadata.annotations is 3: expected object | null, got int",
            id="annotations that are no mapping",
        ),
        pytest.param("metadata: {}", "Pod has no metadata.name; give it one", id="no name"),
        pytest.param("metadata: 3", "metadata is 3: expected object, got int", id="no metadata"),
        pytest.param(
            "metadata: {name: Web_1}",
            "metadata.name is 'Web_1'; use lower-case letters",
            id="a name that the API server refuses",
        ),
        pytest.param(
            "metadata: {name: a}\nspec: {containers: []}",
            "Pod default/a: spec.containers is empty; name at least one container",
            id="a pod without containers",
        ),
        pytest.param(
            "metadata: {name: a}\nspec: {containers: [{name: c}, {name: 3}]}",
            "spec.containers[1].name is 3: expected str, got int",
            id="a number as container name",
        ),
        pytest.param(
            "metadata: {name: a}\nspec: {containers: [{name: c}, {name: c}]}",
            "spec: two containers are named 'c'; give each a name of its own",
            id="two containers of one name",
        ),
        pytest.param(
            "metadata: {name: a}\nspec: {containers: [{image: x}]}",
            "spec: a container has no name",
            id="a container without name",
        ),
        pytest.param(
            "metadata: {name: a}\nspec: {containers: [{name: c, env: [{value: x}]}]}",
            "spec.containers[0].env[0] is a mapping: Object missing required field name",
            id="a variable without name",
        ),
        pytest.param(
            "metadata: {name: a}\nspec: {containers: [{name: c, resources: {limits: {x: true}}}]}",
            "spec.containers[0].resources.limits[x] is true; write a number such as 8",
            id="a boolean as quantity",
        ),
        pytest.param(
            "metadata: {name: a}\nspec: {containers: [{name: c, resources: {limits: {x: }}}]}",
            "spec.containers[0].resources.limits[x] is empty; write a number",
            id="a quantity that was forgotten",
        ),
        pytest.param(
            "metadata: {name: a, creationTimestamp: 2026-01-01}",
            "metadata.creationTimestamp is '2026-01-01'; write it like 2026-01-31T12:00:00Z",
            id="a day as creation time",
        ),
        pytest.param(
            "metadata: {name: a}\nspec: {containers: [{name: c}], affinity: {nodeAffinity: "
            "{requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: "
            "[{matchExpressions: [{key: a, operator: IN}]}]}}}}",
            "nodeSelectorTerms: the operator 'IN' of a is unknown; use In, NotIn",
            id="an unknown operator in an affinity",
        ),
        pytest.param(
            "metadata: {name: a}\nspec: {containers: [{name: c}], affinity: {nodeAffinity: 7}}",
            "Pod default/a: spec.affinity.nodeAffinity: Expected object | null, got int",
            id="an affinity of the wrong type",
        ),
        pytest.param("metadata: {name: a}\nspec: 3", "spec is 3: expected object", id="no spec"),
    ],
)
def test_a_pod_is_refused_for(text, message):
    with pytest.raises(ConfigError) as error:
        in_yaml(text)
    assert message in str(error.value)
    assert str(error.value).startswith("w.yaml:1: Pod")


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        pytest.param(
            a_node(allocatable={"acme.com/gpu": "lots"}),
            "Node n1: status.allocatable[acme.com/gpu]: 'lots' is not a quantity; write a number",
            id="a node with a bad quantity",
        ),
        pytest.param(
            a_quota(mem="8GB"),
            "ResourceQuota default/team: spec.hard[limits.acme.com/mem]: '8GB' is not a quantity",
            id="a quota with a bad quantity",
        ),
        pytest.param(
            a_quota(mem=-1),
            "spec.hard[limits.acme.com/mem]: '-1' is negative",
            id="a quota below 0",
        ),
        pytest.param(
            a_workload("Deployment", replicas=-1),
            "Deployment default/web: spec.replicas is -1; write a number from 0",
            id="negative replicas",
        ),
        pytest.param(
            a_workload("Deployment", replicas=10**9),
            "spec.replicas is 1000000000; write a number from 0 to 1000000",
            id="a billion replicas",
        ),
        pytest.param(
            a_workload("Deployment", replicas=10**30),
            "Deployment default/web: spec.replicas is 1",
            id="replicas beyond any machine's integers",
        ),
        pytest.param(
            a_workload("Job", parallelism="two"),
            "Job default/web: spec.parallelism is two: expected int",
            id="a word as parallelism",
        ),
        pytest.param(
            {"kind": "Job", "metadata": {"name": "j"}, "spec": {}},
            "Job default/j: spec.template.spec.containers is empty",
            id="a workload without template",
        ),
        pytest.param({"metadata": {"name": "x"}}, "this object has no kind", id="no kind"),
        pytest.param([1], "this is no Kubernetes object", id="a list as document"),
        pytest.param(
            {"kind": "List", "items": [7]}, "this is no Kubernetes object", id="a number in a List"
        ),
    ],
)
def test_an_object_is_refused(manifest, message):
    with pytest.raises(ConfigError) as error:
        # YAML's flow style, because JSON at the top must be an object.
        read_manifests([("c.yaml", "---\n" + json.dumps(manifest))])
    assert message in str(error.value)
    assert str(error.value).startswith("c.yaml:")


@pytest.mark.parametrize(
    ("objects", "message"),
    [
        pytest.param([a_pod("a"), a_pod("a")], "Pod default/a: is there twice", id="a pod twice"),
        pytest.param([a_node(), a_node()], "Node n1: is there twice", id="a node twice"),
        pytest.param(
            [a_workload("StatefulSet", "db", replicas=2), a_pod("db-1")],
            "Pod default/db-1: gives the pod default/db-1, which StatefulSet default/db",
            id="a pod that a workload makes too",
        ),
        pytest.param(
            [a_pod("a", metadata={"uid": "u"}), a_pod("b", metadata={"uid": "u"})],
            "Pod default/b: gives the uid of the pod default/b, which Pod default/a",
            id="two pods with one uid",
        ),
    ],
)
def test_objects_clash(objects, message):
    with pytest.raises(ConfigError) as error:
        read(*objects)
    assert message in str(error.value)


def test_an_object_twice_names_both_places():
    text = json.dumps(a_pod("a"))
    with pytest.raises(ConfigError, match=r"^two\.json:1: .* also at one\.json:1; remove one"):
        read_manifests([("one.json", text), ("two.json", text)])


def test_equal_names_in_two_namespaces_do_not_clash():
    manifests = read(a_pod("a"), a_pod("a", namespace="ml"))
    assert names(manifests) == ["default/a", "ml/a"]


def test_uids_are_there_distinct_and_the_same_in_every_run():
    objects = [a_workload("Deployment", replicas=3), a_pod("web-1", namespace="ml")]
    first, again = ([pod.uid for pod in read(*objects).pods] for _ in range(2))
    assert first == again
    assert len({*first, ""}) == 5


def test_a_uid_that_is_written_is_kept():
    assert read(a_pod("a", metadata={"uid": "u-1"})).pods[0].uid == "u-1"


EARLY, LATE = "2026-01-01T00:00:00Z", "2026-01-01T09:00:00+08:00"


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        pytest.param([a_pod("b"), a_pod("a")], ["b", "a"], id="in the order of the file"),
        pytest.param(
            [a_pod("b", created=LATE), a_pod("a", created=EARLY)], ["a", "b"], id="older first"
        ),
        pytest.param([a_pod("b"), a_pod("a", created=LATE)], ["a", "b"], id="new ones come last"),
        pytest.param(
            [a_pod("b"), a_pod("a", priority=5)],
            ["b", "a"],
            id="priority does not reorder the file",
        ),
        pytest.param(
            [a_pod("b", created=EARLY), a_pod("a", created=LATE, priority=5)],
            ["b", "a"],
            id="an older pod was scheduled before a later one of higher priority came",
        ),
    ],
)
def test_pods_are_in_order(pods, expected):
    assert [pod.name for pod in read(*pods).pods] == expected


def test_a_list_is_its_items():
    manifests = read({"kind": "List", "items": [a_node(), a_pod("a")]})
    assert (len(manifests.nodes), names(manifests)) == (1, ["default/a"])


def test_a_typed_list_gives_its_items_their_kind():
    item = {key: value for key, value in a_pod("a").items() if key != "kind"}
    assert names(read({"kind": "PodList", "items": [item]})) == ["default/a"]


def test_an_unknown_kind_is_skipped_with_a_warning():
    manifests = read(a_node(), {"kind": "Service", "metadata": {"name": "s"}, "spec": [1]})
    (warning,) = manifests.warnings
    assert warning.startswith("cluster.json:2: Service default/s is skipped; hami simulate reads")


def test_a_file_without_objects_is_warned_about():
    manifests = read_manifests([("empty.yaml", "---\n"), ("c.yaml", json.dumps(a_node()))])
    assert manifests.warnings == ("empty.yaml holds no object",)


def test_no_node_at_all_is_warned_about():
    assert read(a_pod("a")).warnings == ("no Node in the files: nothing can be placed",)


def generated(kind: str = "Pod", **metadata) -> dict:
    named = a_pod() if kind == "Pod" else a_workload(kind)
    return named | {"metadata": {"generateName": "train-", **metadata}}


def test_generated_names_are_distinct_and_the_same_in_every_run():
    objects = [generated(), generated(), generated(namespace="ml"), generated("Job")]
    first, again = (names(read(*objects)) for _ in range(2))
    assert first == again
    assert len(set(first)) == 4
    assert all(name.partition("/")[2].startswith("train-") for name in first)


def test_a_name_goes_before_a_generated_one():
    assert names(read(generated(name="a"))) == ["default/a"]


def test_a_generated_name_must_be_valid_too():
    with pytest.raises(ConfigError, match=r"metadata\.name is 'Train_"):
        read(generated(generateName="Train_"))


def test_null_means_absent():
    manifests = in_yaml("metadata: {name: a, creationTimestamp: null, annotations: null}")
    assert manifests.pods[0].annotations == {}


def test_init_containers_are_read():
    (pod,) = read(a_pod("a", initContainers=[a_container("setup", gpu=1)])).pods
    assert [container.name for container, _ in pod.each_container()] == ["setup", "main"]


def test_many_unknown_objects_are_one_warning():
    others = [{"kind": kind, "metadata": {"name": "s"}} for kind in ("Service", "Role", "Service")]
    (warning,) = read(a_node(), *others).warnings
    said, _, _ = warning.partition("; hami simulate reads")
    assert said == ("cluster.json:2: Service default/s and 2 more are skipped (2 Service, 1 Role)")
