"""Quota objects as they come from the API server, and what the webhook says to them."""

from __future__ import annotations

import json

import msgspec
import pytest

from hami.domain.kubernetes.objects import (
    CompositeElasticQuota,
    ElasticQuota,
    Metadata,
    Pod,
    QuotaTree,
)
from hami.policy.quota.elastic import Leaf, TreeNode
from hami.policy.quota.elastic.objects.reading import preemptible, read_leaf, read_tree
from hami.policy.quota.elastic.objects.validation import Validation, validate

from .builders import UNITS, G

GPUMEM, NPUMEM = "nvidia.com/gpumem", "bolt.io/mem"
MIB = 1 << 20


def an_object(kind, namespace: str, name: str, /, labels=None, annotations=None, **spec):
    """Through JSON, as the API server sends it."""
    metadata = {"name": name, "namespace": namespace, "labels": labels, "annotations": annotations}
    return msgspec.convert({"metadata": metadata, "spec": spec}, kind)


def a_single(namespace: str = "a", name: str = "q", /, **more):
    return an_object(ElasticQuota, namespace, name, **more)


def a_composite(namespace: str = "ops", name: str = "q", /, **more):
    return an_object(CompositeElasticQuota, namespace, name, **more)


def a_tree(*nodes, name: str = "t") -> QuotaTree:
    return msgspec.convert({"metadata": {"name": name}, "spec": {"nodes": nodes}}, QuotaTree)


def read(quota):
    leaf, problems = read_leaf(quota, UNITS)
    return leaf, [str(problem) for problem in problems]


# Reading.


def test_a_manifest_of_nos():
    leaf, problems = read(a_single("team", "quota", min={"cpu": 10, G: "40"}, max={"cpu": "20"}))
    assert problems == []
    assert leaf == Leaf(
        namespace="team", name="quota", namespaces=("team",),
        min={"cpu": 10_000, G: 40}, max={"cpu": 20_000},
    )  # fmt: skip


def test_a_composite_of_nos():
    leaf, problems = read(a_composite(namespaces=["a", "b"], min={G: 64}))
    assert problems == []
    assert (leaf.key, leaf.namespaces, leaf.max) == (
        "CompositeElasticQuota ops/q",
        ("a", "b"),
        None,
    )


def test_an_object_that_says_nothing_guarantees_and_limits_nothing():
    for quota in (
        ElasticQuota(metadata=Metadata(name="q")),
        CompositeElasticQuota(metadata=Metadata(name="q")),
    ):
        leaf, problems = read(quota)
        assert (leaf.min, leaf.max, leaf.weight, leaf.parent, leaf.borrow, leaf.lend, problems) == (
            {}, None, None, "", None, None, [],
        )  # fmt: skip


@pytest.mark.parametrize(
    ("resource", "text", "expected"),
    [
        pytest.param("cpu", "500m", 500, id="thousandths of a cpu"),
        pytest.param("cpu", 2, 2000, id="a number"),
        pytest.param("cpu", 1.5, 1500, id="a number with a fraction"),
        pytest.param("cpu", "0.0015", 1, id="limits are rounded down"),
        pytest.param("memory", "1Gi", 1 << 30, id="memory in bytes"),
        pytest.param("memory", "129M", 129_000_000, id="decimal bytes"),
        pytest.param(GPUMEM, "10Gi", 10240, id="a binary suffix means bytes"),
        pytest.param(GPUMEM, "8k", 8000, id="8k is how the API server writes 8000"),
        pytest.param(GPUMEM, 8000, 8000, id="MiB as written"),
        pytest.param(NPUMEM, "100", 25600, id="in the vendor's unit"),
        pytest.param(NPUMEM, "1Gi", 1024, id="bytes are not multiplied by the unit"),
        pytest.param(f"{GPUMEM}@A100", "10Gi", 10240, id="of one model"),
        pytest.param(G, "40", 40, id="GB"),
        pytest.param(G, "80Gi", 80, id="GB in bytes"),
        pytest.param("x.io/y", "2k", 2000, id="any other count"),
    ],
)
def test_quantities(resource, text, expected):
    leaf, problems = read(a_single(min={resource: text}, max={resource: text}))
    assert (leaf.min, leaf.max, problems) == ({resource: expected}, {resource: expected}, [])


@pytest.mark.parametrize(
    ("resource", "text", "said"),
    [
        pytest.param(GPUMEM, "1.5", "'1.5' is not a whole number", id="half a MiB"),
        pytest.param(GPUMEM, "500m", "'500m' is not a whole number", id="thousandths"),
        pytest.param(GPUMEM, -1, "'-1' is negative", id="negative"),
        pytest.param("cpu", "-1", "'-1' is negative", id="negative cpu"),
        pytest.param("memory", "lots", "'lots' is not a quantity", id="a word"),
        pytest.param(G, "1.5", "'1.5' is not a whole number", id="half a GB"),
        pytest.param(G, "half", "'half' is not a quantity", id="no GB"),
    ],
)
@pytest.mark.parametrize("where", ["min", "max"])
def test_what_cannot_be_read_counts_as_0_and_is_told(where, resource, text, said):
    leaf, problems = read(a_single(**{where: {resource: text}}))
    assert getattr(leaf, where) == {resource: 0}
    assert problems == [
        f"ElasticQuota a/q: spec.{where}[{resource}]: {said}; counts as 0 until mended"
    ]


def test_place_and_limits_in_the_tree():
    leaf, problems = read(
        a_single(
            min={G: 10},
            labels={"quota.hami.io/parent": "research", "quota.hami.io/weight": "3"},
            annotations={
                "quota.hami.io/borrow-limit": json.dumps({G: 5, GPUMEM: "8Gi"}),
                "quota.hami.io/lend-limit": "{}",
            },
        )
    )
    assert problems == []
    assert (leaf.parent, leaf.weight, leaf.borrow, leaf.lend) == (
        "research", 3, {G: 5, GPUMEM: 8192}, {},
    )  # fmt: skip


def test_a_limit_that_is_no_json_lets_nothing_be_borrowed():
    limits = {"quota.hami.io/borrow-limit": "5Gi"}
    leaf, (problem,) = read(a_single(min={G: 1}, max={GPUMEM: 2}, annotations=limits))
    assert leaf.borrow == {G: 0, GPUMEM: 0}
    assert problem.startswith("ElasticQuota a/q: quota.hami.io/borrow-limit: ")
    assert problem.endswith("counts as 0 of everything in min and max until mended")


def test_a_weight_that_cannot_be_read_is_no_weight():
    leaf, problems = read(a_single(labels={"quota.hami.io/weight": "heavy"}))
    assert leaf.weight is None
    assert problems == [
        "ElasticQuota a/q: quota.hami.io/weight: 'heavy' is not a quantity; counts as not written until mended"
    ]


def test_a_quota_tree():
    tree = a_tree(
        {"name": "top", "min": {G: 4}, "max": {G: "40"}, "borrowLimit": {G: 0}, "weight": 2},
        {"name": "low", "parent": "top", "lendLimit": {"cpu": "1"}, "weight": {G: 3}},
    )
    nodes, problems = read_tree(tree, UNITS)
    assert problems == ()
    assert nodes == (
        TreeNode(name="top", own={G: 4}, max={G: 40}, weight=2, borrow={G: 0}, tree="t"),
        TreeNode(name="low", parent="top", own={}, weight={G: 3}, lend={"cpu": 1000}, tree="t"),
    )


def test_a_node_without_name_does_not_count():
    nodes, (problem,) = read_tree(a_tree({"parent": "x"}), UNITS)
    assert nodes == ()
    assert str(problem) == "QuotaTree t: spec.nodes[0]: has no name; does not count until mended"


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        pytest.param({}, True, id="nothing said"),
        pytest.param({"annotations": {"quota.hami.io/preemptible": "false"}}, False, id="the annotation"),
        pytest.param({"labels": {"quota.hami.io/preemptible": "false"}}, False, id="the label"),
        pytest.param({"labels": {"quota.hami.io/preemptible": "true"}}, True, id="true"),
        pytest.param({"labels": {"quota.scheduling.koordinator.sh/preemptible": "false"}}, True, id="another project's"),
    ],
)  # fmt: skip
def test_pods_that_are_no_victims(metadata, expected):
    assert preemptible(Pod(metadata=Metadata(**metadata))) is expected


@pytest.mark.parametrize(
    ("resource", "amount", "expected"),
    [
        pytest.param("cpu", 1000, "1", id="a cpu"),
        pytest.param("cpu", 1500, "1500m", id="one and a half"),
        pytest.param("memory", 1024, "1024", id="bytes"),
        pytest.param(GPUMEM, 8000, "8000", id="MiB"),
        pytest.param(NPUMEM, 25600, "100", id="the vendor's unit"),
        pytest.param(NPUMEM, 25601, "25601Mi", id="no whole unit"),
        pytest.param(f"{NPUMEM}@910B", 256, "1", id="of one model"),
        pytest.param(G, 49, "49", id="GB"),
    ],
)
def test_amounts_are_written_as_a_quota_would_and_read_back(resource, amount, expected):
    assert UNITS.text(resource, amount) == expected
    assert UNITS.limit(resource, expected) == amount


# The webhook.

GUARANTEE = {"min": {G: 10}}


def said(quota, operation, *others):
    return validate(quota, operation, others, UNITS)


def refused(*texts: str) -> Validation:
    return Validation(refusals=texts)


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE", "DELETE"])
def test_a_sound_quota_is_allowed_beside_its_older_self(operation):
    for quota in (
        a_single(**GUARANTEE),
        a_composite(namespaces=["a"], **GUARANTEE),
        a_tree({"name": "x"}),
    ):
        assert said(quota, operation, quota) == Validation()


ANOTHER = 'only 1 ElasticQuota per namespace is allowed - ElasticQuota "r" already exists in namespace "a"'
COVERED = 'the CompositeElasticQuota "ops/q" already defines quotas for namespace "a"'
TAKEN = ('a namespace can belong to only 1 CompositeElasticQuota: namespace "a" '
         'already belongs to CompositeElasticQuota "ops/q"')  # fmt: skip


@pytest.mark.parametrize(
    ("quota", "operation", "other", "expected"),
    [
        pytest.param(a_single(), "CREATE", a_single("a", "r"), refused(ANOTHER), id="a second in the namespace"),
        pytest.param(a_single(), "UPDATE", a_single("a", "r"), Validation(), id="two may be changed"),
        pytest.param(a_single(), "DELETE", a_single("a", "r"), Validation(), id="and deleted"),
        pytest.param(a_single(), "CREATE", a_single("b", "r"), Validation(), id="one in another namespace"),
        pytest.param(a_single(), "CREATE", a_composite(namespaces=["b", "a"]), refused(COVERED), id="one that a composite covers"),
        pytest.param(a_single(), "UPDATE", a_composite(namespaces=["b", "a"]), Validation(), id="it may be changed"),
        pytest.param(a_composite("x", namespaces=["c", "a"]), "CREATE", a_composite(namespaces=["b", "a"]), refused(TAKEN), id="composites that overlap"),
        pytest.param(a_composite("x", namespaces=["c", "a"]), "UPDATE", a_composite(namespaces=["b", "a"]), refused(TAKEN), id="by a change"),
        pytest.param(a_composite("x", namespaces=["c"]), "CREATE", a_composite(namespaces=["b", "a"]), Validation(), id="composites side by side"),
        pytest.param(a_composite("x", namespaces=["a"]), "CREATE", a_single(), Validation(), id="a composite over a single quota"),
    ],
)  # fmt: skip
def test_one_quota_for_a_namespace_in_the_words_of_nos(quota, operation, other, expected):
    assert said(quota, operation, other) == expected


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
@pytest.mark.parametrize(
    ("quota", "text"),
    [
        pytest.param(a_single(min={"cpu": -1}), "spec.min[cpu]: '-1' is negative", id="negative"),
        pytest.param(a_single(max={GPUMEM: "1.5"}), f"spec.max[{GPUMEM}]: '1.5' is not a whole number", id="a fraction"),
        pytest.param(a_single(min={"cpu": 2}, max={"cpu": "1500m"}), "spec.max[cpu]: 1500m is less than min, 2", id="max below min"),
        pytest.param(a_single(labels={"quota.hami.io/weight": "-1"}), "quota.hami.io/weight: '-1' is negative", id="a weight"),
        pytest.param(a_composite(namespaces=["a", "b", "a"]), 'spec.namespaces: "a" is there 2 times', id="a namespace twice"),
        pytest.param(a_composite(namespaces=[]), "spec.namespaces: there is none: a composite quota names those that it is for", id="no namespace"),
        pytest.param(a_composite(), "spec.namespaces: there is none: a composite quota names those that it is for", id="no such key"),
        pytest.param(a_tree({"name": "x", "min": {"cpu": 2}, "max": {"cpu": 1}}), "x.max[cpu]: 1 is less than min, 2", id="a group's max below its own"),
        pytest.param(a_tree({"name": "x", "parent": "x"}), "x.parent: x > x is a circle", id="its own parent"),
        pytest.param(a_tree({"name": "x"}, {"name": "x"}), 'x: "x" is already a node of QuotaTree t', id="a node twice"),
        pytest.param(a_tree({}), "spec.nodes[0]: has no name", id="no name"),
    ],
)  # fmt: skip
def test_what_contradicts_itself_is_refused(quota, text, operation):
    assert said(quota, operation) == refused(text)


def test_max_may_equal_min_and_name_other_resources():
    assert (
        said(a_single(min={"cpu": 1, G: 4}, max={"cpu": 1, "memory": 0}), "CREATE") == Validation()
    )


def test_a_circle_through_two_objects_is_refused():
    verdict = said(
        a_tree({"name": "y", "parent": "x"}, name="u"),
        "UPDATE",
        a_tree({"name": "x", "parent": "y"}),
    )
    assert verdict == refused("y.parent: y > x > y is a circle")


NOWHERE = 'there is no node "x" in any QuotaTree; until there is, it hangs on the root'


@pytest.mark.parametrize(
    ("quota", "others", "warnings"),
    [
        pytest.param(a_single(labels={"quota.hami.io/parent": "x"}), [], (NOWHERE,), id="an unknown parent"),
        pytest.param(a_single(labels={"quota.hami.io/parent": "x"}), [a_tree({"name": "x"})], (), id="a known one"),
        pytest.param(a_tree({"name": "y", "parent": "x"}), [], (f"y: {NOWHERE}",), id="a node's unknown parent"),
        pytest.param(a_single(labels={"quota.hami.io/parent": "x"}, **GUARANTEE), [a_tree({"name": "x", "max": {G: 9}})],
                     (f"x: what is guaranteed in it is 10 of {G}, more than its max, 9",), id="more guaranteed than a group may reach"),
        pytest.param(a_tree({"name": "x", "max": {G: 12}}, {"name": "y", "parent": "x", "min": {G: 3}}),
                     [a_single(labels={"quota.hami.io/parent": "y"}, **GUARANTEE), a_single("b", **GUARANTEE)],
                     (f"x: what is guaranteed in it is 13 of {G}, more than its max, 12",), id="by groups within it"),
    ],
)  # fmt: skip
def test_what_may_be_meant_is_warned_of(quota, others, warnings):
    assert said(quota, "CREATE", *others) == Validation(warnings=warnings)
