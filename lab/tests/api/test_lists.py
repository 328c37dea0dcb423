"""Lists: selectors, order, pages."""

from __future__ import annotations

import asyncio

import pytest


@pytest.fixture
async def maps(api) -> str:
    """Four config maps; every test selects by a label, for a namespace has others of its own."""
    for name, labels in (
        ("a", {"g": "1", "t": "x"}),
        ("b", {"g": "1"}),
        ("c", {"g": "2", "t": "y"}),
        ("d", {"g": "3"}),
    ):
        await api.config_map(name, labels=labels)
    return api.path("configmaps")


async def test_a_list_says_its_kind_once(api, maps):
    answer = await api.get(maps, labelSelector="g")
    assert answer.body["kind"] == "ConfigMapList"
    assert answer.body["apiVersion"] == "v1"
    assert int(answer.version) > 0
    assert all("kind" not in item for item in answer.body["items"])


async def test_a_list_is_in_the_order_of_names(api, maps):
    assert (await api.get(maps, labelSelector="g")).names == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("g=1", "ab"),
        ("g==1", "ab"),
        ("g!=1,g", "cd"),
        ("g in (1,3)", "abd"),
        ("g notin (1, 3),g", "c"),
        ("t,g", "ac"),
        ("!t,g", "bd"),
        ("g=1,t=x", "a"),
        ("g=none", ""),
        ("none notin (x),g=2", "c"),
    ],
)
async def test_a_label_selector_selects(api, maps, selector, names):
    assert (await api.get(maps, labelSelector=selector)).names == list(names)


@pytest.mark.parametrize("selector", ["a===b", "a in b", "a in (", "=b", "a b"])
async def test_what_is_no_label_selector_is_a_bad_request(api, selector):
    answer = await api.get(api.path("configmaps"), labelSelector=selector)
    assert answer.refusal == (400, "BadRequest")


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("metadata.name=a", "a"),
        ("metadata.name==a", "a"),
        ("metadata.name!=a", "bcd"),
        ("metadata.namespace=elsewhere", ""),
    ],
)
async def test_a_field_selector_selects(api, maps, selector, names):
    answer = await api.get(maps, labelSelector="g", fieldSelector=selector)
    assert answer.names == list(names)


@pytest.mark.parametrize("selector", ["spec.none=a", "metadata.name", "data.a=b"])
async def test_what_is_no_field_selector_is_a_bad_request(api, selector):
    for plural in ("configmaps", "pods"):
        answer = await api.get(api.path(plural), fieldSelector=selector)
        assert answer.refusal == (400, "BadRequest")


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("spec.nodeName=n1", ["bound", "over"]),
        ("spec.nodeName=", ["free"]),
        ("spec.nodeName!=n1", ["free"]),
        ("status.phase=Pending", ["bound", "free"]),
        ("status.phase!=Succeeded,status.phase!=Failed", ["bound", "free"]),
        ("spec.schedulerName=nobody,spec.nodeName=n1", ["bound", "over"]),
    ],
)
async def test_pods_are_selected_by_node_and_phase(api, selector, names):
    for name in ("bound", "free", "over"):
        await api.pod(name)
    await api.bound("bound")
    await api.bound("over")
    await api.set_status("over", phase="Succeeded")
    assert (await api.get(api.path("pods"), fieldSelector=selector)).names == names


async def test_a_list_of_all_namespaces_has_this_one(api, maps):
    answer = await api.get("/api/v1/configmaps", labelSelector="g=3")
    namespaces = {item["metadata"]["namespace"] for item in answer.body["items"]}
    assert api.namespace in namespaces


async def test_pages_make_up_the_list(api, maps):
    first = await api.get(maps, labelSelector="g", limit=3)
    assert first.names == ["a", "b", "c"]
    # With a selector nobody counts what is left.
    assert "remainingItemCount" not in first.meta
    second = await api.get(maps, labelSelector="g", limit=3, **{"continue": first.meta["continue"]})
    assert second.names == ["d"]
    assert "continue" not in second.meta
    assert second.version == first.version


async def test_a_page_says_how_many_are_left(api, maps):
    all_of_them = len((await api.get(maps)).names)
    first = await api.get(maps, limit=1)
    assert first.meta["remainingItemCount"] == all_of_them - 1


async def test_later_pages_show_the_moment_of_the_first(api, maps):
    first = await api.get(maps, labelSelector="g", limit=2)
    await api.delete(api.path("configmaps", "c"))
    await api.config_map("e", labels={"g": "5"})
    rest = await api.get(maps, labelSelector="g", **{"continue": first.meta["continue"]})
    assert rest.names == ["c", "d"]


async def test_a_limit_that_all_fit_in_leaves_nothing(api, maps):
    all_of_them = (await api.get(maps)).names
    answer = await api.get(maps, limit=len(all_of_them))
    assert answer.names == all_of_them
    assert "continue" not in answer.meta


@pytest.mark.parametrize(
    "query",
    [
        pytest.param({"limit": "x"}, id="a limit that is no number"),
        pytest.param({"continue": "abc"}, id="a token that is none"),
        pytest.param({"resourceVersion": "abc"}, id="a version that is none"),
    ],
)
async def test_a_query_that_makes_no_sense_is_a_bad_request(api, query):
    answer = await api.get(api.path("configmaps"), **query)
    assert answer.refusal == (400, "BadRequest")


@pytest.mark.parametrize("match", [{}, {"resourceVersionMatch": "NotOlderThan"}])
async def test_a_list_may_be_as_old_as_a_version(api, maps, match):
    version = (await api.get(maps)).version
    answer = await api.get(maps, labelSelector="g", resourceVersion=version, **match)
    assert answer.names == ["a", "b", "c", "d"]


async def test_a_version_of_the_future_is_not_served(api):
    answer = await api.get(
        api.path("configmaps"), resourceVersion=2**40, resourceVersionMatch="NotOlderThan"
    )
    assert answer.refusal == (504, "Timeout")


async def test_lists_at_the_same_time_agree(api, maps):
    answers = await asyncio.gather(*(api.get(maps, labelSelector="g") for _ in range(5)))
    assert {tuple(answer.names) for answer in answers} == {("a", "b", "c", "d")}
