"""Priority classes become numbers at admission."""

from __future__ import annotations

import pytest

from .cluster import a_pod

CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


@pytest.fixture
async def named(api):
    """A priority class, and its removal: it belongs to the whole cluster."""
    name = f"p-{api.namespace}"
    body = {"metadata": {"name": name}, "value": 1000, "preemptionPolicy": "Never"}
    assert (await api.post(CLASSES, body)).status == 201
    yield name
    await api.delete(f"{CLASSES}/{name}")


async def test_a_class_gives_its_value_and_policy(api, named):
    spec = (await api.pod("p", priorityClassName=named)).body["spec"]
    assert (spec["priority"], spec["preemptionPolicy"]) == (1000, "Never")


async def test_a_class_that_does_not_exist_is_refused(api):
    answer = await api.post(api.path("pods"), a_pod("p", priorityClassName="none-such"))
    assert answer.refusal == (403, "Forbidden")
    assert answer.message == (
        'pods "p" is forbidden: no PriorityClass with name none-such was found'
    )


@pytest.mark.parametrize("priority", [5, -5])
async def test_a_priority_is_not_taken_at_its_word(api, priority):
    answer = await api.post(api.path("pods"), a_pod("p", priority=priority))
    assert answer.refusal == (403, "Forbidden")


async def test_the_right_priority_may_be_given(api, named):
    await api.pod("p", priorityClassName=named, priority=1000)
    await api.pod("q", priority=0)


async def test_a_classs_value_never_changes(api, named):
    answer = await api.patch(f"{CLASSES}/{named}", {"value": 7})
    assert answer.refusal == (422, "Invalid")
