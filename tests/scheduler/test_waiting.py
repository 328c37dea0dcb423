"""Which pods there is something new for: kinds, sets of nodes, rounds; and what is kept of each."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hami.domain import reasons
from hami.domain.kubernetes.objects import Resources, SchedulingGate
from hami.domain.reasons import Rejected
from hami.domain.units import PodUid
from hami.policy.filter.decision import Refused
from hami.policy.tables.node_names import NameBlock
from hami.scheduler.pending.answers import MOST_TEXTS, explained
from hami.scheduler.pending.equivalence import KindKeys
from hami.scheduler.pending.node_sets import ANYWHERE, NodeSets
from hami.scheduler.pending.pending_pods import PendingPods, Refusal
from hami.scheduler.pending.wake_round import Round
from hami.scheduler.readonly.views import why_view

from .builders import Cluster, a_node, a_pod, acme

NODES = ("n1", "n2", "n3")
NODE = st.sampled_from(NODES)


def refuse(pods: PendingPods, pod: Any, *offered: str) -> None:
    pods.arrived(pod, known_before=False)
    pods.refused(pod, offered, Refusal(at=0, text="no"))


def attempts(pods: PendingPods) -> dict[str, set[str]]:
    """One whole round in which nobody is refused and nobody taken."""
    found = (attempt for attempt in Round(pods, 0.0).steps() if attempt is not None)
    return {a.waiting.pod.name: set(pods.names(a.nodes, NODES)) for a in found}


# Kinds.


def changed(pod: Any, **fields: Any) -> Any:
    return msgspec.structs.replace(pod, **fields)


def about(pod: Any, **fields: Any) -> Any:
    return changed(pod, metadata=msgspec.structs.replace(pod.metadata, **fields))


def spec(pod: Any, **fields: Any) -> Any:
    return changed(pod, spec=msgspec.structs.replace(pod.spec, **fields))


def container(pod: Any, **fields: Any) -> Any:
    (one,) = pod.spec.containers
    return spec(pod, containers=[msgspec.structs.replace(one, **fields)])


INDEX = "batch.kubernetes.io/job-completion-index"
POD = a_pod("one")


@pytest.mark.parametrize(
    "other",
    [
        a_pod("two", created="2026-01-01", priority=5),
        about(POD, labels={INDEX: "7", "apps.kubernetes.io/pod-index": "7"}),
        about(POD, annotations={INDEX: "7"}),
        about(POD, annotations={"hami.io/wake-up": "3"}),
        container(POD, env=[]),
        spec(POD, tolerations=[], node_selector={"a": "b"}),
    ],
    ids=["name", "labels", "index", "wake-up", "environment", "selector"],
)
def test_what_no_decision_reads_makes_no_other_kind(other: Any) -> None:
    kinds = KindKeys(acme())
    assert kinds.of(other) == kinds.of(POD)


@pytest.mark.parametrize(
    "other",
    [
        a_pod("one", namespace="other"),
        a_pod("one", mem=2000),
        a_pod("one", init_mem=1000),
        container(POD, resources=Resources(requests={"acme.com/gpu": "1", "acme.com/mem": "1000"})),
        about(POD, annotations={"acme.com/use-gputype": "ACME Two"}),
        about(POD, annotations={"hami.io/gpu-scheduler-policy": "mutex"}),
        about(POD, annotations={"mock.hami.io/fail": "hami_fit"}),
        spec(POD, priority_class_name="high"),
        spec(POD, active_deadline_seconds=5),
        spec(POD, affinity={"podAffinity": {}}),
    ],
    ids=[
        "namespace", "amount", "init", "requests", "type", "policy", "plugin", "priority class",
        "deadline", "affinity",
    ],
)  # fmt: skip
def test_what_a_decision_may_read_makes_another_kind(other: Any) -> None:
    kinds = KindKeys(acme())
    assert kinds.of(other) != kinds.of(POD)


def test_all_pods_of_a_kind_are_tried_once() -> None:
    pods = PendingPods(acme())
    for index in range(100):
        refuse(pods, about(a_pod(f"p{index}"), labels={INDEX: str(index)}), *NODES)
    pods.freed_on("n2")
    turn = Round(pods, 0.0)
    tried = 0
    for attempt in turn.steps():
        if attempt is not None:
            tried += 1
            turn.refuse(attempt)
    assert tried == 1
    assert list(Round(pods, 0.0).steps()) == [None], "nothing new since"


# Sets of nodes.


@given(st.lists(st.lists(st.text("abc", min_size=1, max_size=3), unique=True), max_size=6))
def test_a_set_has_the_names_that_were_put_in(sets: list[list[str]]) -> None:
    numbers = NodeSets()
    everywhere = sorted({name for names in sets for name in names})
    masks = [numbers.of(names) for names in sets]
    for names, mask in zip(sets, masks, strict=True):
        assert sorted(numbers.names(mask, everywhere)) == sorted(names)
        assert set(numbers.names(~mask, everywhere)) == set(everywhere) - set(names)
        assert numbers.names(mask & ANYWHERE, names[:1]) == names[:1]
        assert set(numbers.names(ANYWHERE, everywhere)) == set(everywhere)


def test_the_same_names_in_another_order_are_the_same_set() -> None:
    numbers = NodeSets()
    one, other = NameBlock.of(["a", "b", "c"]), NameBlock.of(["c", "a", "b"])
    assert one is not None
    assert other is not None
    assert numbers.of(one) is numbers.of(other)
    assert numbers.of(["b", "c", "a"]) == numbers.of(one)


# Rounds.

OPERATIONS = st.one_of(
    st.tuples(st.just("refuse"), st.integers(0, 5), st.frozensets(NODE)),
    st.tuples(st.just("leave"), st.integers(0, 5)),
    st.tuples(st.just("free"), NODE),
    st.tuples(st.just("quota"), st.sampled_from(["a", "b"])),
    st.tuples(st.just("everywhere")),
    st.tuples(st.just("forget")),
    st.tuples(st.just("round")),
)


class Model:
    """What a round must find, said without kinds, masks and marks."""

    def __init__(self) -> None:
        self.change = self.tried = self.everywhere = 0
        self.nodes = dict.fromkeys(NODES, 0)
        self.namespaces = {"a": 0, "b": 0}
        self.pods: dict[int, tuple[frozenset[str], int]] = {}

    def attempts(self) -> dict[str, set[str]]:
        found = {}
        for number, (offered, seen) in self.pods.items():
            quota = max(self.namespaces[namespace_of(number)], self.everywhere)
            last = max(seen, self.tried)
            if nodes := {n for n in offered if max(self.nodes[n], quota) > last}:
                found[f"p{number}"] = nodes
        self.tried = self.change
        return found


def namespace_of(number: int) -> str:
    return "ab"[number % 2]


@given(st.lists(OPERATIONS, max_size=40))
def test_a_round_finds_every_pod_with_something_new_for_it_once(operations: list[Any]) -> None:
    pods, model = PendingPods(acme()), Model()
    for name, *arguments in [*operations, ("round",)]:
        model.change += 1
        match name, arguments:
            case "refuse", [number, offered]:
                pod = a_pod(f"p{number}", mem=1000 + number // 4, namespace=namespace_of(number))
                refuse(pods, pod, *sorted(offered))
                model.pods[number] = (offered, model.change)
            case "leave", [number]:
                pods.left(PodUid(f"uid-{namespace_of(number)}-p{number}"))
                model.pods.pop(number, None)
            case "free", [node]:
                pods.freed_on(node)
                model.nodes[node] = model.change
            case "quota", [namespace]:
                pods.freed_in(namespace)
                model.namespaces[namespace] = model.change
            case "everywhere", []:
                pods.freed_everywhere()
                model.everywhere = model.change
            case "forget", []:
                pods.forget_offers()
                model.everywhere = model.change
                model.pods = {n: (frozenset(NODES), 0) for n in model.pods}
            case _:
                assert attempts(pods) == model.attempts()


def test_a_round_goes_on_where_it_stopped_when_pods_have_come_and_gone() -> None:
    pods = PendingPods(acme())
    for number in range(1, 6):
        refuse(pods, a_pod(f"p{number}", created=str(number)), "n1")
    pods.freed_on("n1")
    found = []
    for attempt in Round(pods, 0.0).steps():
        if attempt is None:
            continue
        found.append(attempt.waiting.pod.name)
        if found == ["p2"] or found == ["p1", "p2"]:
            pods.left(PodUid("uid-default-p2"))
            pods.left(PodUid("uid-default-p3"))
            refuse(pods, a_pod("p0", created="0"), "n1")
    assert found == ["p1", "p2", "p4", "p5"]


def test_the_most_urgent_of_all_kinds_comes_first() -> None:
    pods = PendingPods(acme())
    refuse(pods, a_pod("c", mem=1, created="3"), "n1")
    refuse(pods, a_pod("b", mem=2, created="2"), "n1")
    refuse(pods, a_pod("d", mem=1, created="4"), "n1")
    refuse(pods, a_pod("a", mem=2, created="9", priority=1), "n1")
    pods.freed_on("n1")
    assert list(attempts(pods)) == ["a", "b", "c", "d"]


def test_a_pod_whose_request_is_edited_changes_its_kind() -> None:
    pods = PendingPods(acme())
    refuse(pods, a_pod("p"), "n1")
    pods.freed_on("n1")
    edited = a_pod("p", annotations={"hami.io/gpu-scheduler-policy": "spread"})
    pods.arrived(edited, known_before=False)
    assert len(pods.kinds) == 1
    assert attempts(pods) == {"p": {"n1"}}


# What is kept of a refusal.


def test_a_thousand_waiting_pods_on_many_nodes_take_little_memory() -> None:
    """So much for each was kept before: 1.3 MiB."""
    names = [f"gpu-node-{number:05}.example.internal" for number in range(5000)]
    cluster = Cluster(a_node())
    refused = [cluster.reserve(a_pod(mem=9000), *names) for _ in range(2)]
    pods = PendingPods(acme())
    pods.refused(a_pod("first"), names, Refusal(at=0, outcome=refused[0]))
    tracemalloc.start()
    try:
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        for number in range(100):
            window = names[number * 40 :][:1000]
            pods.refused(a_pod(f"p{number}"), window, Refusal(at=0, outcome=refused[1]))
        gc.collect()
        each = (tracemalloc.get_traced_memory()[0] - before) / 100
    finally:
        tracemalloc.stop()
    assert each < 20 * 1024


def many_reasons(texts: int) -> Refused:
    answers = [Rejected.of({reasons.NO_MEMORY: n}, 1000) for n in range(1, texts + 1)]
    numbers = [n for n in range(texts) for _ in range(2)]
    return Refused(
        candidates=[f"n{n:04}" for n in range(2 * texts)], answers=answers, answer=np.array(numbers)
    )


def test_of_many_different_texts_the_rest_is_counted_together() -> None:
    why = explained(many_reasons(MOST_TEXTS + 5))
    assert len(why.reasons) == MOST_TEXTS + 1
    assert (why.reasons[-1].reason, why.reasons[-1].nodes) == ("other reasons", 10)
    assert sum(said.nodes for said in why.reasons) == 2 * (MOST_TEXTS + 5)
    assert why.message.startswith(f"0/{2 * (MOST_TEXTS + 5)} nodes fit: ")
    assert "10 other reasons" in why.message


def test_a_few_texts_are_kept_as_they_are() -> None:
    why = explained(many_reasons(2))
    assert [(said.reason, said.nodes, said.examples) for said in why.reasons] == [
        ("1/1000 CardInsufficientMemory", 2, ("n0000", "n0001")),
        ("2/1000 CardInsufficientMemory", 2, ("n0002", "n0003")),
    ]


def test_a_gated_pod_says_which_gates_it_waits_for() -> None:
    cluster = Cluster(a_node())
    gates = [SchedulingGate(name="example.com/quota"), SchedulingGate(name="example.com/data")]
    pod = spec(a_pod("p"), scheduling_gates=gates)
    cluster.sees(pod)
    answer = why_view(cluster.state, pod)
    assert answer.phase == "waiting"
    assert answer.message.endswith("scheduling gates: example.com/quota, example.com/data")
