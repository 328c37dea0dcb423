"""The extender protocol byte for byte, as kube-scheduler and HAMi write it."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hami.domain.kubernetes.objects import Pod
from hami.wire.bodies import BadBody, decode_body
from hami.wire.extender import (
    ExtenderArgs,
    ExtenderBindingArgs,
    ExtenderBindingResult,
    ExtenderFilterResult,
    ExtenderPreemptionArgs,
    ExtenderPreemptionResult,
    MetaPod,
    MetaVictims,
)

SHORT = {"node1": "1/1 CardInsufficientMemory"}


@pytest.mark.parametrize(
    ("answer", "golden"),
    [
        pytest.param(ExtenderFilterResult(node_names=["node2"]),
                     b'{"Nodes":null,"NodeNames":["node2"],"FailedNodes":null,'
                     b'"FailedAndUnresolvableNodes":null,"Error":""}', id="a node was chosen"),
        pytest.param(ExtenderFilterResult(failed_nodes=SHORT),
                     b'{"Nodes":null,"NodeNames":null,'
                     b'"FailedNodes":{"node1":"1/1 CardInsufficientMemory"},'
                     b'"FailedAndUnresolvableNodes":null,"Error":""}', id="no node fits"),
        pytest.param(ExtenderFilterResult(error="extender args missing pod"),
                     b'{"Nodes":null,"NodeNames":null,"FailedNodes":null,'
                     b'"FailedAndUnresolvableNodes":null,"Error":"extender args missing pod"}',
                     id="an error"),
        pytest.param(ExtenderFilterResult(node_names=[], failed_nodes={},
                                          failed_and_unresolvable_nodes={"n": "CardTypeMismatch"}),
                     b'{"Nodes":null,"NodeNames":null,"FailedNodes":null,'
                     b'"FailedAndUnresolvableNodes":{"n":"CardTypeMismatch"},"Error":""}',
                     id="what is empty is null"),
        pytest.param(ExtenderFilterResult(nodes=msgspec.Raw(b'{"items":[]}')),
                     b'{"Nodes":{"items":[]},"NodeNames":null,"FailedNodes":null,'
                     b'"FailedAndUnresolvableNodes":null,"Error":""}', id="whole nodes"),
        pytest.param(ExtenderBindingResult(), b'{"Error":""}', id="bound"),
        pytest.param(ExtenderBindingResult(
                         error="node n1 has been locked within 5m0s: node lock contention"),
                     b'{"Error":"node n1 has been locked within 5m0s: node lock contention"}',
                     id="not bound"),
        pytest.param(ExtenderPreemptionResult(node_name_to_meta_victims={
                         "n1": MetaVictims(pods=[MetaPod(uid="u1")], num_pdb_violations=1)}),
                     b'{"NodeNameToMetaVictims":{"n1":{"Pods":[{"UID":"u1"}],'
                     b'"NumPDBViolations":1}}}', id="preemption goes on"),
        pytest.param(ExtenderPreemptionResult(), b'{"NodeNameToMetaVictims":null}', id="a veto"),
    ],
)  # fmt: skip
def test_answers(answer, golden):
    assert msgspec.json.encode(answer) == golden


def test_a_filter_request_with_names_keeps_its_pod_undecoded():
    body = b'{"Pod":{"metadata":{"uid":"u1"}},"Nodes":null,"NodeNames":["n1","n2"],"New":1}'
    args = decode_body(body, ExtenderArgs)
    assert args.node_names == ["n1", "n2"]
    assert (args.has_pod, args.has_nodes) == (True, False)
    assert msgspec.json.decode(args.pod, type=Pod).uid == "u1"


def test_a_filter_request_with_whole_nodes():
    args = decode_body(b'{"Pod":{},"Nodes":{"items":[]}}', ExtenderArgs)
    assert (args.has_nodes, args.node_names, bytes(args.nodes)) == (True, None, b'{"items":[]}')


@pytest.mark.parametrize("body", [b"{}", b'{"Pod":null,"NodeNames":null,"Nodes":null}'])
def test_absent_and_null_are_the_same(body):
    args = decode_body(body, ExtenderArgs)
    assert (args.has_pod, args.has_nodes, args.node_names) == (False, False, None)


def test_a_bind_request():
    body = b'{"PodName":"p","PodNamespace":"ns","PodUID":"u1","Node":"n1"}'
    assert decode_body(body, ExtenderBindingArgs) == ExtenderBindingArgs(
        pod_name="p", pod_namespace="ns", pod_uid="u1", node="n1"
    )


def test_a_preemption_request_with_uids():
    body = (
        b'{"Pod":{"metadata":{"uid":"u0"}},"NodeNameToVictims":null,"NodeNameToMetaVictims":'
        b'{"n1":{"Pods":[{"UID":"u1"}],"NumPDBViolations":2},"n2":{"Pods":null}}}'
    )
    args = decode_body(body, ExtenderPreemptionArgs)
    assert args.node_name_to_victims is None
    assert args.node_name_to_meta_victims == {
        "n1": MetaVictims(pods=[MetaPod(uid="u1")], num_pdb_violations=2),
        "n2": MetaVictims(),
    }


def test_a_preemption_request_with_whole_pods():
    body = b'{"NodeNameToVictims":{"n1":{"Pods":[{"metadata":{"uid":"u1"}}]}}}'
    victims = decode_body(body, ExtenderPreemptionArgs).node_name_to_victims
    assert [pod.uid for pod in victims["n1"].pods] == ["u1"]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        pytest.param(b"", "the body is no ExtenderArgs: Input data was truncated", id="nothing"),
        pytest.param(b'{"NodeNames":[1]}', "the body is no ExtenderArgs: Expected `str`, got `int` "
                     "- at `$.NodeNames[0]`", id="a number for a name"),
        pytest.param(b'{"x":' + b"[" * 100_000, "the body is no ExtenderArgs", id="nested deeply"),
        pytest.param(b'{"NodeNames":["\xff"]}', "the body is no ExtenderArgs", id="no UTF-8"),
        pytest.param(b"null", "the body is no ExtenderArgs", id="null"),
    ],
)  # fmt: skip
def test_a_bad_body_says_where(body, text):
    assert str(decode_body(body, ExtenderArgs)).startswith(text)


@given(st.binary() | st.text().map(str.encode))
def test_no_body_raises(body):
    assert isinstance(decode_body(body, ExtenderArgs), ExtenderArgs | BadBody)
