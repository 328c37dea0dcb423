"""The demo's machinery without its cluster: steps that fail, pictures of clusters."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hami_lab.demo.picture import Cluster, overcommitted, picture, usages
from hami_lab.demo.run import DemoResult, Skipped, Step, StepFailed, run_steps
from hami_lab.demo.steps import check_plugins
from hami_lab.demo.workloads import read_objects
from hami_lab.kubelet.nodes import LiveNode
from hami_lab.live import LivePod

from hami.domain.errors import ConfigError
from tests.simulate.builders import a_node, the_vendors


def a_held(name: str, memory: int, *, node: str = "n1", phase: str = "Running") -> LivePod:
    """A pod that runs on the node's first device."""
    return msgspec.convert(
        {
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": name,
                "annotations": {"acme.com/allocated": f"{node}-0,ACME,{memory},10:;"},
            },
            "spec": {
                "nodeName": node,
                "containers": [{"name": "c", "resources": {"limits": {"acme.com/gpu": "1"}}}],
            },
            "status": {"phase": phase},
        },
        LivePod,
    )


def a_waiting(name: str, message: str) -> LivePod:
    condition = {"type": "PodScheduled", "status": "False", "message": message}
    body: dict[str, Any] = {"metadata": {"name": name, "uid": name}, "spec": {"containers": []}}
    return msgspec.convert(body | {"status": {"conditions": [condition]}}, LivePod)


def taken(*pods: LivePod):
    node = msgspec.convert(a_node("n1", devices=1, memory=1000), LiveNode)
    return picture(Cluster(nodes=[node], pods=pods), the_vendors())


def test_a_picture_counts_what_runs_and_not_what_is_over():
    found = taken(a_held("a", 300), a_held("b", 200), a_held("c", 900, phase="Succeeded"))
    ((key, usage),) = usages(found).items()
    assert (key, usage.memory_mib, usage.cores, usage.slots) == (("n1", "n1-0"), 500, 20, 2)
    assert [placed.pod.name for placed in found.placed] == ["a", "b"]
    assert overcommitted(found) == []


def test_a_picture_shows_why_pods_wait():
    (pending,) = taken(a_waiting("w", "0/1 nodes are available: 1 full.")).pending
    assert (pending.pod.name, pending.message) == ("w", "0/1 nodes are available: 1 full.")


def test_an_over_allocated_device_is_found():
    (text,) = overcommitted(taken(a_held("a", 600), a_held("b", 600)))
    assert text.startswith("n1-0 on n1: ")


async def test_a_step_that_fails_is_told_and_the_next_one_runs():
    async def fine():
        return ["as expected"]

    async def broken():
        raise StepFailed("3 instead of 4")

    shown = []
    steps = [Step(name="a", title="A", run=broken), Step(name="b", title="B", run=fine)]
    results = await run_steps(steps, shown.append)
    assert shown == results
    assert [(r.held, r.problem, list(r.lines)) for r in results] == [
        (False, "3 instead of 4", []),
        (True, "", ["as expected"]),
    ]
    assert not DemoResult(steps=results, picture=taken()).held
    assert DemoResult(steps=results[1:], picture=taken()).held


async def test_a_step_that_is_skipped_neither_held_nor_failed():
    async def absent():
        return Skipped(why="there is no compiler")

    results = await run_steps([Step(name="a", title="A", run=absent)], lambda _: None)
    (result,) = results
    assert (result.held, result.problem, result.skipped) == (False, "", "there is no compiler")
    assert result.as_json()["skipped"] == "there is no compiler"
    assert DemoResult(steps=results, picture=taken()).held


async def test_a_bug_in_a_step_is_no_failed_step():
    async def bug():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await run_steps([Step(name="a", title="A", run=bug)], lambda _: None)


def test_the_demo_names_the_plugins_that_it_needs():
    with pytest.raises(
        ConfigError,
        match=r"pip install -e \. -e lab -e shim/simgpu -e plugins/nvidia -e plugins/mock",
    ):
        check_plugins(the_vendors())


def test_objects_that_others_depend_on_come_first():
    text = """
kind: Pod
apiVersion: v1
metadata: {name: p}
---
kind: List
apiVersion: v1
items:
- {kind: ResourceQuota, apiVersion: v1, metadata: {name: q}}
- {kind: Node, apiVersion: v1, metadata: {name: n}}
- {kind: Namespace, apiVersion: v1, metadata: {name: s}}
"""
    kinds = [document.value["kind"] for document in read_objects([("x.yaml", text)])]
    assert kinds == ["Namespace", "Node", "ResourceQuota", "Pod"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("kind: Pod\nmetadata: {name: p}", r"x.yaml:1: this is no Kubernetes object"),
        ("kind: Pod\napiVersion: v1", r"x.yaml:1: this Pod has no metadata"),
        ("{kind: Pud, apiVersion: v1, metadata: {name: p}}", r"x.yaml:1: .* knows no Pud in 'v1'"),
        ("a: [", r"x.yaml:\d: this is not valid YAML"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_its_line(text, why):
    with pytest.raises(ConfigError, match=why):
        read_objects([("x.yaml", text)])
