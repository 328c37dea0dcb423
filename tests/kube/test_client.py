"""Calls: what goes over the wire, and what its failures become."""

from __future__ import annotations

import asyncio
import socket

import pytest

from hami.domain.kubernetes.objects import Metadata
from hami.kube import transport
from hami.kube.client import KubeClient, PodBinding
from hami.kube.errors import ApiError
from hami.kube.identity.settings import KubeSettings
from hami.kube.messages import Added, Bookmark, Deleted, Modified
from hami.kube.resources import (
    CONFIGMAPS,
    LEASES,
    NODES,
    PODS,
    ConfigMap,
    Lease,
    LeaseSpec,
)

from .fake_api import connected, kubeconfig, running, until


async def failure(call) -> ApiError:
    with pytest.raises(ApiError) as caught:
        await call
    return caught.value


def a_binding(uid: str = "uid-1", **fields) -> PodBinding:
    given = {"namespace": "ns", "name": "p", "uid": uid, "node": "n1",
             "annotations": {"hami.io/a": "1"}, "labels": {"hami.io/l": "2"}}  # fmt: skip
    return PodBinding(**(given | fields))


# Paths.


@pytest.mark.parametrize(
    ("resource", "where", "path"),
    [
        pytest.param(NODES, (), "/api/v1/nodes", id="cluster-wide"),
        pytest.param(NODES, ("", "n1"), "/api/v1/nodes/n1", id="one of them"),
        pytest.param(PODS, (), "/api/v1/pods", id="of all namespaces"),
        pytest.param(PODS, ("ns", "p", "binding"), "/api/v1/namespaces/ns/pods/p/binding", id="subresource"),
        pytest.param(LEASES, ("ns", "l"), "/apis/coordination.k8s.io/v1/namespaces/ns/leases/l", id="group"),
        pytest.param(PODS, ("../x", "a/b?c"), "/api/v1/namespaces/..%2Fx/pods/a%2Fb%3Fc", id="hostile"),
    ],
)  # fmt: skip
def test_paths(resource, where, path):
    assert resource.path(*where) == path


# Reads and writes.


async def test_get_create_patch_update_and_delete(api, client):
    made = await client.create(
        CONFIGMAPS, {"metadata": {"name": "c"}, "data": {"a": "1", "empty": ""}}, namespace="ns"
    )
    assert made.data == {"a": "1", "empty": ""}
    patched = await client.patch(CONFIGMAPS, "c", {"data": {"a": None, "b": "2"}}, namespace="ns")
    assert patched.data == {"empty": "", "b": "2"}
    whole = {"metadata": {"name": "c"}, "data": {"z": "26"}}
    assert (await client.update(CONFIGMAPS, "c", whole, namespace="ns")).data == {"z": "26"}
    assert (await client.get(CONFIGMAPS, "c", namespace="ns")).metadata.uid == made.metadata.uid
    await client.delete(CONFIGMAPS, "c", namespace="ns", uid=made.metadata.uid)
    assert (await failure(client.get(CONFIGMAPS, "c", namespace="ns"))).status == 404


async def test_a_struct_is_created_with_its_kind_and_without_what_is_open(api, client):
    lease = Lease(metadata=Metadata(name="l"), spec=LeaseSpec(holder_identity="me"))
    await client.create(LEASES, lease, namespace="ns")
    body = api.asked[-1].body
    assert (body["apiVersion"], body["kind"]) == ("coordination.k8s.io/v1", "Lease")
    assert body["spec"] == {"holderIdentity": "me"}


async def test_a_struct_keeps_empty_texts(api, client):
    await client.create(
        CONFIGMAPS, ConfigMap(metadata=Metadata(name="c"), data={"e": ""}), namespace="ns"
    )
    assert api.asked[-1].body["data"] == {"e": ""}


@pytest.mark.parametrize(
    ("kind", "content_type"),
    [
        ("merge", "application/merge-patch+json"),
        ("json", "application/json-patch+json"),
        ("strategic", "application/strategic-merge-patch+json"),
    ],
)
async def test_each_patch_has_its_content_type(api, client, kind, content_type):
    api.put("nodes", "n")
    await client.patch(NODES, "n", {"spec": {}}, kind=kind, subresource="status")
    assert api.asked[-1].headers["Content-Type"] == content_type
    assert api.asked[-1].path == "/api/v1/nodes/n/status"


@pytest.mark.parametrize("status", [200, 503])
@pytest.mark.parametrize(("most", "read"), [(200, True), (20, False)])
async def test_of_a_pod_s_answer_only_so_much_is_read(api, client, status, most, read):
    api.refuse("/proxy/", status, message="too many words")
    asked = client.ask_pod("ns", "p", port=9394, path="/a/b", most=most, timeout=5)
    if status == 200 and read:
        assert b"too many words" in await asked
    else:
        error = await failure(asked)
        assert error.call == "get pods ns/p/proxy"
        words = "too many words" if read else "the answer is longer than 20 bytes"
        assert words in error.message
    assert api.asked[-1].path == "/api/v1/namespaces/ns/pods/http:p:9394/proxy/a/b"


async def test_a_stale_version_is_a_conflict(api, client):
    api.put("nodes", "n")
    error = await failure(client.patch(NODES, "n", {"metadata": {"resourceVersion": "1"}}))
    assert (error.status, error.reason, error.outcome_unknown) == (409, "Conflict", False)


async def test_a_list_is_decoded_from_all_its_pages(api, client):
    for i in range(7):
        api.put("nodes", f"n{i}")
    found = await client.list(NODES, page_size=3)
    assert [n.name for n in found] == [f"n{i}" for i in range(7)]
    assert len(api.calls("GET")) == 3


async def test_the_version_of_the_server(client):
    assert await client.server_version() == (1, 30)


async def test_a_watch_gives_each_kind_of_event(api, client):
    api.put("nodes", "n")
    at = str(int(api.version) - 1)
    seen = []
    async for event in client.watch(NODES, at):
        seen.append(event)
        match len(seen):
            case 1:
                api.put("nodes", "n")
            case 2:
                api.remove("nodes", "n")
            case 3:
                api.bookmark("nodes", "777")
            case _:
                break
    assert [type(e) for e in seen] == [Added, Modified, Deleted, Bookmark]
    assert seen[-1] == Bookmark(resource_version="777")


async def test_a_watch_of_an_old_version_is_gone(api, client):
    api.put("nodes", "n")
    api.expire()

    async def watch():
        async for _ in client.watch(NODES, "1"):
            pass

    assert (await failure(watch())).status == 410


# Binding.


async def test_a_binding_is_one_post_that_carries_everything(api, client):
    api.put("pods", "p", "ns")
    await client.bind(a_binding(), timeout=5)
    (asked,) = api.asked
    assert (asked.method, asked.path) == ("POST", "/api/v1/namespaces/ns/pods/p/binding")
    assert asked.body == {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "p", "namespace": "ns", "uid": "uid-1",
                     "annotations": {"hami.io/a": "1"}, "labels": {"hami.io/l": "2"}},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"},
    }  # fmt: skip
    assert api.objects["pods"]["ns", "p"]["spec"]["nodeName"] == "n1"


@pytest.mark.parametrize(
    ("status", "unknown"),
    [(400, False), (403, False), (404, False), (408, True), (409, False), (429, False),
     (500, True), (503, True), (504, True)],
)  # fmt: skip
async def test_a_bind_is_sent_once_and_its_failure_says_whether_it_may_have_happened(
    api, client, status, unknown
):
    api.put("pods", "p", "ns")
    api.refuse("binding", status, message="because", Retry_After="0")
    error = await failure(client.bind(a_binding(), timeout=5))
    assert (error.status, error.message, error.outcome_unknown) == (status, "because", unknown)
    assert len(api.asked) == 1


async def test_a_bind_without_an_answer_in_time_may_have_happened(api, client):
    api.hang("binding")
    error = await failure(client.bind(a_binding(), timeout=0.05))
    assert (error.status, error.outcome_unknown) == (0, True)
    assert str(error) == "bind pods ns/p: no answer: no answer within 0.05 s"


async def test_a_bind_that_never_left_did_not_happen(tmp_path):
    settings = KubeSettings(kubeconfig=kubeconfig(tmp_path, "http://127.0.0.1:1"))
    async with await KubeClient.connect(settings) as client:
        error = await failure(client.bind(a_binding(), timeout=5))
    assert (error.status, error.outcome_unknown) == (0, False)
    assert "cannot reach http://127.0.0.1:1" in str(error)


async def test_a_bind_that_waited_for_our_own_limit_did_not_happen(api, tmp_path):
    async with connected(tmp_path, api, qps=0.01, burst=1) as client:
        api.put("nodes", "n")
        await client.get(NODES, "n")
        error = await failure(client.bind(a_binding(), timeout=0.05))
    assert (error.outcome_unknown, api.calls("POST")) == (False, [])
    assert "our own limit of calls per second" in str(error)


async def test_a_bind_that_waited_for_a_connection_did_not_happen(tmp_path):
    """The system accepts it, and nobody says anything of TLS."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"https://127.0.0.1:{silent.getsockname()[1]}"
        settings = KubeSettings(kubeconfig=kubeconfig(tmp_path, url))
        async with await KubeClient.connect(settings) as client:
            error = await failure(client.bind(a_binding(), timeout=0.05))
    assert (error.status, error.sent, error.outcome_unknown) == (0, False, False)
    assert "not sent within 0.05 s: at the end it waited for a connection" in str(error)


async def test_a_bind_behind_others_did_not_happen(api, tmp_path, monkeypatch):
    monkeypatch.setattr(transport, "CONNECTIONS", 1)
    api.hang("binding")
    async with (
        connected(tmp_path, api) as client,
        running(client.bind(a_binding(), timeout=60)),
    ):
        await until(lambda: api.asked)
        error = await failure(client.bind(a_binding(), timeout=0.05))
    assert (error.outcome_unknown, len(api.asked)) == (False, 1)


async def test_an_answer_that_breaks_off_may_have_happened(api, client, monkeypatch):
    api.put("nodes", "n")
    api.refuse("nodes/n", 500, after=True, method="PATCH")
    error = await failure(client.patch(NODES, "n", {"metadata": {"labels": {"a": "b"}}}))
    assert error.outcome_unknown
    assert api.objects["nodes"]["", "n"]["metadata"]["labels"] == {"a": "b"}


async def test_an_eviction_names_its_pod_and_preconditions(api, client):
    api.put("pods", "p", "ns")
    await client.evict("ns", "p", uid="uid-1", grace_seconds=0)
    assert api.asked[-1].path == "/api/v1/namespaces/ns/pods/p/eviction"
    assert api.asked[-1].body["deleteOptions"] == {
        "preconditions": {"uid": "uid-1"},
        "gracePeriodSeconds": 0,
    }


async def test_an_eviction_that_a_budget_forbids_is_not_repeated(api, client):
    api.put("pods", "p", "ns")
    api.refuse("eviction", 429, times=2, Retry_After="0")
    assert (await failure(client.evict("ns", "p"))).status == 429
    assert len(api.asked) == 1


# Failures.


async def test_429_with_a_time_is_waited_for_and_repeated(api, client):
    api.put("nodes", "n")
    api.refuse("nodes", 429, times=3, Retry_After="0")
    assert (await client.get(NODES, "n")).name == "n"
    assert len(api.asked) == 4


async def test_429_that_asks_for_more_time_than_there_is_fails_at_once(api, tmp_path):
    async with connected(tmp_path, api, timeout=5) as client:
        api.refuse("nodes", 429, Retry_After="60")
        error = await failure(client.get(NODES, "n"))
    assert (error.status, error.retry_after, len(api.asked)) == (429, 60.0, 1)


async def test_a_call_that_hangs_ends_with_its_timeout(api, tmp_path):
    api.hang("nodes")
    async with connected(tmp_path, api, timeout=0.05) as client:
        error = await failure(client.get(NODES, "n"))
    assert str(error) == "get nodes n: no answer: no answer within 0.05 s"


async def test_a_refusal_without_a_status_keeps_its_text(api, client):
    api.faults.clear()
    api.refuse("nodes", 502, message="")
    error = await failure(client.get(NODES, "n"))
    assert str(error) == "get nodes n: 502 Bad Gateway: Bad Gateway"


async def test_an_answer_of_the_wrong_shape_is_an_api_error_and_definite(api, client):
    api.put("nodes", "n", status={"allocatable": 7})
    error = await failure(client.get(NODES, "n"))
    assert (error.status, error.reason, error.outcome_unknown) == (200, "Unreadable", False)


async def test_calls_are_counted_by_verb_resource_and_status(api, tmp_path):
    calls = []
    api.put("nodes", "n")
    settings = KubeSettings(kubeconfig=kubeconfig(tmp_path, api.url))
    async with await KubeClient.connect(settings, on_call=calls.append) as client:
        await client.get(NODES, "n")
        await failure(client.get(PODS, "p", namespace="ns"))
        await failure(client.bind(a_binding(), timeout=5))
    assert [(c.verb, c.resource, c.status) for c in calls] == [
        ("get", "nodes", 200), ("get", "pods", 404), ("bind", "pods", 404),
    ]  # fmt: skip
    assert all(c.seconds > 0 for c in calls)


async def test_a_cancelled_call_is_not_swallowed(api, client):
    api.hang("nodes")
    task = asyncio.create_task(client.get(NODES, "n"))
    await until(lambda: api.asked)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_our_own_limit_spares_leases(api, tmp_path):
    async with connected(tmp_path, api, qps=0.01, burst=1, timeout=0.05) as client:
        api.put("nodes", "n")
        api.put("leases", "l", "ns")
        await client.get(NODES, "n")
        await client.get(LEASES, "l", namespace="ns")
        assert (await failure(client.get(NODES, "n"))).status == 0
