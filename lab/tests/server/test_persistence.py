"""A server that keeps its objects in a file."""

from __future__ import annotations

import json

import aiohttp
import pytest
from hami_lab.api import ApiServer
from hami_lab.api.objects.refusals import Refusal

from hami.domain.errors import ConfigError

from .conftest import CONFIG_MAPS


def a_map(name: str) -> dict:
    return {"kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "b"}}


def a_pod(name: str) -> dict:
    container = {"name": "c", "image": "b:1", "resources": {"limits": {"a.b/c": 1}}}
    return {"kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container]}}


async def test_what_was_stored_is_there_again(tmp_path):
    file = tmp_path / "cluster.db"
    async with ApiServer(persist=file) as server:
        kept = await server.create(a_map("kept"))
        await server.create(a_map("gone"))
        await server.delete("configmaps", "gone", namespace="default")
    async with ApiServer(persist=file) as server:
        assert server.get("configmaps", "kept", namespace="default") == kept
        with pytest.raises(Refusal, match="not found"):
            server.get("configmaps", "gone", namespace="default")


async def test_versions_go_on_and_old_watches_do_not(tmp_path):
    file = tmp_path / "cluster.db"
    async with ApiServer(persist=file) as server:
        await server.create(a_map("a"))
        await server.delete("configmaps", "a", namespace="default")
        before = int((await server.create(a_map("b")))["metadata"]["resourceVersion"])
        await server.delete("configmaps", "b", namespace="default")
    async with ApiServer(persist=file) as server, aiohttp.ClientSession(server.url) as client:
        after = int((await server.create(a_map("c")))["metadata"]["resourceVersion"])
        assert after > before + 1
        query = {"watch": "1", "resourceVersion": str(before)}
        async with client.get(CONFIG_MAPS, params=query) as answer:
            event = json.loads(await answer.content.readline())
        assert (event["type"], event["object"]["code"]) == ("ERROR", 410)


async def test_quotas_count_what_was_stored(tmp_path):
    file = tmp_path / "cluster.db"
    async with ApiServer(persist=file) as server:
        hard = {"requests.a.b/c": "1"}
        await server.create(
            {"kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": hard}}
        )
        await server.create(a_pod("a"))
    async with ApiServer(persist=file) as server:
        with pytest.raises(Refusal, match=r"exceeded quota: q, .* used: requests.a.b/c=1"):
            await server.create(a_pod("b"))
        await server.delete("pods", "a", namespace="default")
        assert server.get("resourcequotas", "q", namespace="default")["status"]["used"] == {
            "requests.a.b/c": "0"
        }


async def test_custom_resources_are_served_again(tmp_path):
    file = tmp_path / "cluster.db"
    names = {"plural": "frobs", "kind": "Frob"}
    spec = {
        "group": "hami.io", "scope": "Cluster", "names": names,
        "versions": [{"name": "v1", "served": True, "storage": True}],
    }  # fmt: skip
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "frobs.hami.io"}, "spec": spec,
    }  # fmt: skip
    async with ApiServer(persist=file) as server:
        await server.create(crd)
        await server.create({"apiVersion": "hami.io/v1", "kind": "Frob", "metadata": {"name": "f"}})
    async with ApiServer(persist=file) as server:
        assert [frob["metadata"]["name"] for frob in server.objects("frobs", group="hami.io")] == [
            "f"
        ]


async def test_a_file_belongs_to_one_server(tmp_path):
    file = tmp_path / "cluster.db"
    async with ApiServer(persist=file):
        with pytest.raises(
            ConfigError, match=r"cluster\.db: cannot keep the cluster's objects here"
        ):
            await ApiServer(persist=file).start()


async def test_a_file_of_something_else_is_left_alone(tmp_path):
    file = tmp_path / "notes.txt"
    file.write_text("these are notes, not a database, and longer than a header\n" * 10)
    with pytest.raises(ConfigError, match="not a database"):
        await ApiServer(persist=file).start()
    assert file.read_text().startswith("these are notes")
