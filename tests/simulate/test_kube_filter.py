"""Which nodes a pod may go to, as kube-scheduler says it."""

from __future__ import annotations

import pytest

from hami.domain.errors import ConfigError
from hami.simulate.kube_filter import KubeFilter

from .builders import a_node, a_pod, read

NOT_SELECTED = "node(s) didn't match Pod's node affinity/selector"
TAINT = {"key": "team", "value": "ml", "effect": "NoSchedule"}


def refusal(pod, node) -> str:
    """Why the node is refused; empty when it is not."""
    manifests = read(node, pod)
    found = KubeFilter(manifests.nodes).candidates(manifests.pods[0])
    assert (found.names == ("n1",)) == (not found.refused)
    return found.refused.get("n1", "")


def requiring(*expressions, fields=(), terms=None):
    """A pod with required node affinity."""
    written = terms or [{"matchExpressions": list(expressions), "matchFields": list(fields)}]
    required = {"nodeSelectorTerms": written}
    key = "requiredDuringSchedulingIgnoredDuringExecution"
    return a_pod(affinity={"nodeAffinity": {key: required}})


def line(key, operator, *values):
    return {"key": key, "operator": operator, "values": list(values) or None}


def tolerating(**toleration):
    return a_pod(tolerations=[toleration])


@pytest.mark.parametrize(
    ("pod", "node", "expected"),
    [
        pytest.param(a_pod(), a_node(), "", id="nothing asked, nothing refused"),
        pytest.param(a_pod(nodeSelector={"a": "1"}), a_node(labels={"a": "1"}), "", id="selected"),
        pytest.param(
            a_pod(nodeSelector={"a": "1"}),
            a_node(labels={"a": "2"}),
            NOT_SELECTED,
            id="other value",
        ),
        pytest.param(a_pod(nodeSelector={"a": "1"}), a_node(), NOT_SELECTED, id="no such label"),
        pytest.param(
            a_pod(nodeSelector={"kubernetes.io/hostname": "n1"}),
            a_node(),
            "",
            id="a node has its name as hostname label, as kubelet sets it",
        ),
        pytest.param(
            a_pod(nodeSelector={"kubernetes.io/hostname": "n1"}),
            a_node(labels={"kubernetes.io/hostname": "other"}),
            NOT_SELECTED,
            id="a written hostname label counts",
        ),
        pytest.param(requiring(line("a", "In", "1", "2")), a_node(labels={"a": "2"}), "", id="In"),
        pytest.param(requiring(line("a", "In", "1")), a_node(), NOT_SELECTED, id="In, absent"),
        pytest.param(requiring(line("a", "NotIn", "1")), a_node(), "", id="NotIn, absent"),
        pytest.param(
            requiring(line("a", "NotIn", "1")), a_node(labels={"a": "1"}), NOT_SELECTED, id="NotIn"
        ),
        pytest.param(requiring(line("a", "Exists")), a_node(labels={"a": ""}), "", id="Exists"),
        pytest.param(requiring(line("a", "Exists")), a_node(), NOT_SELECTED, id="Exists, absent"),
        pytest.param(requiring(line("a", "DoesNotExist")), a_node(), "", id="DoesNotExist"),
        pytest.param(
            requiring(line("a", "DoesNotExist")),
            a_node(labels={"a": ""}),
            NOT_SELECTED,
            id="DoesNotExist, there",
        ),
        pytest.param(requiring(line("a", "Gt", "5")), a_node(labels={"a": "6"}), "", id="Gt"),
        pytest.param(
            requiring(line("a", "Gt", "5")), a_node(labels={"a": "5"}), NOT_SELECTED, id="Gt, equal"
        ),
        pytest.param(requiring(line("a", "Lt", "-5")), a_node(labels={"a": "-6"}), "", id="Lt"),
        pytest.param(
            requiring(line("a", "Lt", "5")),
            a_node(labels={"a": "x"}),
            NOT_SELECTED,
            id="Lt, a word",
        ),
        pytest.param(requiring(line("a", "Lt", "5")), a_node(), NOT_SELECTED, id="Lt, absent"),
        pytest.param(
            requiring(fields=[line("metadata.name", "In", "n1")]), a_node(), "", id="by name"
        ),
        pytest.param(
            requiring(fields=[line("metadata.name", "NotIn", "n1")]),
            a_node(),
            NOT_SELECTED,
            id="by name, another",
        ),
        pytest.param(
            requiring(line("a", "Exists"), line("b", "Exists")),
            a_node(labels={"a": ""}),
            NOT_SELECTED,
            id="every expression of a term must hold",
        ),
        pytest.param(
            requiring(
                terms=[
                    {"matchExpressions": [line("a", "Exists")]},
                    {"matchExpressions": [line("b", "Exists")]},
                ]
            ),
            a_node(labels={"b": ""}),
            "",
            id="one term is enough",
        ),
        pytest.param(requiring(terms=[{}]), a_node(), NOT_SELECTED, id="an empty term is nothing"),
        pytest.param(
            a_pod(affinity={"podAffinity": {"anything": [1]}}),
            a_node(),
            "",
            id="pods are not looked at",
        ),
        pytest.param(
            a_pod(),
            a_node(taints=[TAINT]),
            "node(s) had untolerated taint {team: ml}",
            id="tainted",
        ),
        pytest.param(
            a_pod(),
            a_node(taints=[{"key": "k", "effect": "NoExecute"}]),
            "node(s) had untolerated taint {k: }",
            id="a taint without value",
        ),
        pytest.param(
            a_pod(), a_node(taints=[TAINT | {"effect": "PreferNoSchedule"}]), "", id="a soft taint"
        ),
        pytest.param(
            tolerating(key="team", value="ml"), a_node(taints=[TAINT]), "", id="equal by default"
        ),
        pytest.param(
            tolerating(key="team", value="web"),
            a_node(taints=[TAINT]),
            "node(s) had untolerated taint {team: ml}",
            id="another value is not tolerated",
        ),
        pytest.param(
            tolerating(key="team", operator="Exists"), a_node(taints=[TAINT]), "", id="any value"
        ),
        pytest.param(tolerating(operator="Exists"), a_node(taints=[TAINT]), "", id="everything"),
        pytest.param(
            tolerating(key="team", operator="Exists", effect="NoExecute"),
            a_node(taints=[TAINT]),
            "node(s) had untolerated taint {team: ml}",
            id="another effect is not tolerated",
        ),
        pytest.param(
            a_pod(), a_node(unschedulable=True), "node(s) were unschedulable", id="a cordoned node"
        ),
        pytest.param(
            tolerating(key="node.kubernetes.io/unschedulable", operator="Exists"),
            a_node(unschedulable=True),
            "",
            id="a cordon can be tolerated",
        ),
        pytest.param(
            a_pod(nodeSelector={"a": "1"}),
            a_node(taints=[TAINT]),
            "node(s) had untolerated taint {team: ml}",
            id="taints come before selectors",
        ),
    ],
)
def test_a_node_is_refused_for(pod, node, expected):
    assert refusal(pod, node) == expected


def test_pods_that_ask_alike_share_one_answer():
    manifests = read(
        a_node(taints=[TAINT]), a_pod("a"), a_pod("b"), a_pod("c", nodeSelector={"a": "b"})
    )
    kube = KubeFilter(manifests.nodes)
    first, second, third = (kube.candidates(pod) for pod in manifests.pods)
    assert first is second
    assert third is not first


def test_candidates_are_in_the_order_of_the_nodes():
    manifests = read(a_node("n2"), a_node("n1", taints=[TAINT]), a_node("n0"), a_pod())
    found = KubeFilter(manifests.nodes).candidates(manifests.pods[0])
    assert found.names == ("n2", "n0")


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        pytest.param(line("a", "In"), "a In needs values", id="In without values"),
        pytest.param(line("a", "Exists", "1"), "a Exists takes no values", id="Exists with values"),
        pytest.param(line("a", "Gt", "many"), "a Gt needs one whole number", id="Gt a word"),
        pytest.param(line("a", "Gt", "1", "2"), "a Gt needs one whole number", id="Gt two numbers"),
    ],
)
def test_an_affinity_is_refused_as_the_api_server_does(expression, message):
    with pytest.raises(ConfigError, match=message):
        read(requiring(expression))


def test_an_affinity_by_another_field_is_refused():
    with pytest.raises(ConfigError, match=r"matchFields knows metadata\.name alone, not 'spec\.x'"):
        read(requiring(fields=[line("spec.x", "In", "1")]))


def test_an_affinity_without_terms_is_refused():
    key = "requiredDuringSchedulingIgnoredDuringExecution"
    with pytest.raises(ConfigError, match="nodeSelectorTerms is empty; name at least one term"):
        read(a_pod(affinity={"nodeAffinity": {key: {"nodeSelectorTerms": []}}}))


NAMED = line("metadata.name", "In", "n1")
OTHER = line("metadata.name", "In", "n2")


@pytest.mark.parametrize(
    ("pod", "node", "expected"),
    [
        pytest.param(requiring(fields=[NAMED]), a_node(), "", id="the node that it names"),
        pytest.param(
            requiring(fields=[OTHER]), a_node(taints=[TAINT]), NOT_SELECTED,
            id="of another node kube-scheduler looks at nothing else",
        ),
        pytest.param(
            requiring(fields=[NAMED]), a_node(taints=[TAINT]),
            "node(s) had untolerated taint {team: ml}", id="its own node's taint counts",
        ),
        pytest.param(
            requiring(terms=[{"matchFields": [OTHER]}, {"matchFields": [NAMED]}]), a_node(), "",
            id="one of two terms names it",
        ),
        pytest.param(
            requiring(terms=[{"matchFields": [OTHER]}, {"matchExpressions": [line("a", "Exists")]}]),
            a_node(labels={"a": "1"}), "", id="a term that names no node lets any in",
        ),
        pytest.param(
            requiring(line("a", "Exists"), fields=[NAMED]), a_node(), NOT_SELECTED,
            id="what else a term asks must hold on the node that it names",
        ),
    ],
)  # fmt: skip
def test_a_pod_that_names_its_nodes(pod, node, expected):
    assert refusal(pod, node) == expected
