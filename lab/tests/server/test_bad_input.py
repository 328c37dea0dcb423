"""Whatever a client sends, it is told what is wrong with it: never 500, never a traceback."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hami_lab.api.http.verbs import Verbs
from hami_lab.api.http.watching import Watch
from hami_lab.api.objects.refusals import Refusal
from hami_lab.api.objects.request import Request
from hami_lab.api.writes.operations import Operations

BAD = [
    None,
    0,
    -1,
    1.5,
    True,
    "",
    "x",
    "A_/",
    [],
    {},
    [1],
    ["x"],
    [None],
    [{}],
    {"a": 1},
    {"a": None},
    {"": ""},
]

CONTAINER = {
    "name": "c", "image": "b:1", "env": [{"name": "A", "value": "1"}],
    "resources": {"limits": {"a.b/c": "1"}, "requests": {"cpu": "1"}}, "restartPolicy": "Always",
    "ports": [{"containerPort": 80}], "securityContext": {"privileged": True},
}  # fmt: skip
POD_SPEC = {
    "containers": [{**CONTAINER, "name": "a"}], "initContainers": [CONTAINER], "nodeName": "n",
    "nodeSelector": {"a": "b"}, "tolerations": [{"key": "a", "operator": "Exists"}],
    "schedulingGates": [{"name": "a/b"}], "priorityClassName": "", "overhead": {"cpu": "1"},
    "affinity": {"nodeAffinity": {}}, "restartPolicy": "Always", "terminationGracePeriodSeconds": 3,
}  # fmt: skip
METADATA = {
    "name": "x", "labels": {"a": "b"}, "annotations": {"a": "b"}, "finalizers": ["a/b"],
    "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "o", "uid": "u"}],
}  # fmt: skip
HOOK = {
    "name": "a.b.c", "clientConfig": {"url": "https://127.0.0.1:1", "caBundle": "eA=="},
    "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["x"]}],
    "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 5,
    "namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]},
}  # fmt: skip
BODIES: dict[tuple[str, str], dict[str, Any]] = {
    ("", "pods"): {"spec": POD_SPEC, "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}},
    ("", "nodes"): {
        "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}], "unschedulable": True},
        "status": {"capacity": {"cpu": "1"}, "conditions": [{"type": "Ready", "status": "True"}]},
    },
    ("", "resourcequotas"): {"spec": {"hard": {"pods": "1"}, "scopes": ["BestEffort"]}, "status": {"used": {"pods": "1"}}},
    ("", "namespaces"): {"spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}},
    ("", "events"): {"involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"}, "source": {"component": "c"}, "count": 1},
    ("", "secrets"): {"stringData": {"a": "b"}, "data": {"c": "ZA=="}, "type": "Opaque"},
    ("events.k8s.io", "events"): {"regarding": {"kind": "Pod", "namespace": "default"}, "eventTime": "2026-01-01T00:00:00.000000Z",
                                  "type": "Normal", "action": "a", "reason": "r", "reportingController": "c", "reportingInstance": "i"},
    ("coordination.k8s.io", "leases"): {"spec": {"holderIdentity": "me", "leaseDurationSeconds": 5, "renewTime": "2026-01-01T00:00:00.000000Z"}},
    ("policy", "poddisruptionbudgets"): {"spec": {"minAvailable": "50%", "selector": {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}}},
    ("apps", "deployments"): {"spec": {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": POD_SPEC}}},
    ("batch", "jobs"): {"spec": {"parallelism": 1, "completions": 1, "template": {"metadata": {"labels": {"a": "b"}}, "spec": POD_SPEC}}},
    ("authentication.k8s.io", "tokenreviews"): {"spec": {"token": "a-token", "audiences": ["a"]}},
    ("authorization.k8s.io", "subjectaccessreviews"): {
        "spec": {"user": "u", "uid": "i", "groups": ["g"], "extra": {"a": ["b"]},
                 "resourceAttributes": {"verb": "get", "resource": "pods", "subresource": "log", "namespace": "default", "name": "p"}},
    },
    ("scheduling.k8s.io", "priorityclasses"): {"value": 5, "globalDefault": True, "preemptionPolicy": "Never"},
    ("admissionregistration.k8s.io", "validatingwebhookconfigurations"): {"webhooks": [HOOK]},
    ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"): {"webhooks": [HOOK]},
    ("apiextensions.k8s.io", "customresourcedefinitions"): {
        "spec": {"group": "h.io", "scope": "Cluster", "names": {"plural": "x", "kind": "X", "shortNames": ["y"]},
                 "versions": [{"name": "v1", "served": True, "storage": True, "subresources": {"status": {}}}]},
    },
}  # fmt: skip


def paths(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if at:
        yield at
    children = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, child in children:
        yield from paths(child, (*at, key))


def spoiled(body: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The body with each of its parts replaced by each bad value, and without it."""
    for path in paths(body):
        for bad in [*BAD, "remove"]:
            changed = copy.deepcopy(body)
            parent: Any = changed
            for key in path[:-1]:
                parent = parent[key]
            if bad == "remove":
                del parent[path[-1]]
            else:
                parent[path[-1]] = copy.deepcopy(bad)
            yield f"{'.'.join(map(str, path))} = {bad!r}", changed


class Server:
    def __init__(self) -> None:
        self.operations = Operations(history=10)
        self.verbs = Verbs(self.operations, "a-token")

    async def ask(
        self,
        verb: str,
        key: tuple[str, str],
        body: Any,
        type: str = "application/json",
        **more: Any,
    ) -> int:
        kind = self.operations.kinds.named(key[1], key[0])
        request = Request(
            verb=verb, kind=kind, namespace="default" if kind.namespaced else "", **more
        )
        try:
            return (await self.verbs.answer(request, json.dumps(body).encode(), type)).status
        except Refusal as refusal:
            return refusal.code


@pytest.fixture
async def server() -> Server:
    found = Server()
    await found.ask("create", ("", "namespaces"), {"metadata": {"name": "default"}})
    return found


each_kind = pytest.mark.parametrize("key", BODIES, ids=lambda key: "/".join(key).strip("/"))


@each_kind
async def test_a_spoiled_object_is_taken_or_refused(server, key):
    for what, body in spoiled({"metadata": METADATA, **BODIES[key]}):
        status = await server.ask("create", key, body)
        assert status < 500, what
        for item in server.operations.storage.collection(
            server.operations.kinds.named(key[1], key[0]).storage
        ).within():
            if item.key[1] != "default":
                emptied = {"metadata": {"finalizers": None, "ownerReferences": None}}
                assert (
                    await server.ask(
                        "patch", key, emptied, "application/merge-patch+json", name=item.key[1]
                    )
                    < 500
                ), what
                assert (
                    await server.ask(
                        "delete", key, {}, name=item.key[1], query={"gracePeriodSeconds": "0"}
                    )
                    < 500
                ), what


@each_kind
@pytest.mark.parametrize("type", ["merge-patch", "strategic-merge-patch"])
async def test_a_spoiled_patch_is_taken_or_refused(server, key, type):
    body = {
        "metadata": {**METADATA, "finalizers": [], "ownerReferences": []},
        **copy.deepcopy(BODIES[key]),
    }
    if key == ("apiextensions.k8s.io", "customresourcedefinitions"):
        body["metadata"]["name"] = "x.h.io"
    if key == ("scheduling.k8s.io", "priorityclasses"):
        del body["value"]
    created = await server.ask("create", key, body)
    assert created == 201
    for what, patch in spoiled(body):
        for subresource in ("", "status"):
            status = await server.ask(
                "patch",
                key,
                patch,
                f"application/{type}+json",
                name=body["metadata"]["name"],
                subresource=subresource,
            )
            assert status < 500, what


@pytest.mark.parametrize("subresource", ["binding", "eviction"])
async def test_a_spoiled_binding_or_eviction_is_taken_or_refused(server, subresource):
    body = {
        "metadata": {"name": "p", "uid": "", "annotations": {"a": "b"}, "labels": {"c": "d"}},
        "target": {"kind": "Node", "name": "n"},
        "deleteOptions": {"gracePeriodSeconds": 0, "preconditions": {"uid": ""}, "propagationPolicy": "Background"},
    }  # fmt: skip
    for what, changed in spoiled(body):
        pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "b"}]}}
        await server.ask("create", ("", "pods"), pod)
        assert (
            await server.ask("create", ("", "pods"), changed, name="p", subresource=subresource)
            < 500
        ), what
        await server.ask("delete", ("", "pods"), {"gracePeriodSeconds": 0}, name="p")


@pytest.mark.parametrize(
    "operations",
    [
        [{"op": "add"}], [{"op": "add", "path": 1, "value": 1}], [{"op": "add", "path": "a", "value": 1}],
        [{"op": "move", "path": "/metadata/name"}], [{"op": "copy", "path": "/a", "from": 5}],
        [{"op": "remove", "path": ""}], [{"op": "replace", "path": "", "value": []}], [{}], [[]], [None],
        [{"op": "add", "path": "/spec/containers/-1", "value": {}}],
        [{"op": "add", "path": "/spec/containers/01", "value": {}}],
        [{"op": "add", "path": "/spec/containers/-/x", "value": {}}],
        [{"op": "move", "from": "/spec", "path": "/spec/containers/0"}],
        [{"op": "replace", "path": "/metadata", "value": None}],
        [{"op": "add", "path": "/metadata/labels", "value": {"a": {"b": "c"}}}],
        [{"op": ["add"], "path": "/metadata/x", "value": 1}],
    ],
    ids=str,
)  # fmt: skip
async def test_a_spoiled_json_patch_is_refused(server, operations):
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "b"}]}}
    await server.ask("create", ("", "pods"), pod)
    status = await server.ask(
        "patch", ("", "pods"), operations, "application/json-patch+json", name="p"
    )
    assert 400 <= status < 500


@pytest.mark.parametrize("verb", ["list", "watch"])
@pytest.mark.parametrize(
    "query",
    [
        {"limit": "-1"}, {"limit": "1e9"}, {"limit": "\uff19"}, {"continue": "%%%"}, {"continue": "bnVsbA"},
        {"continue": "eyJydiI6W119"}, {"resourceVersion": "-1"}, {"resourceVersion": "1.5"},
        {"timeoutSeconds": "x"}, {"labelSelector": "((("}, {"labelSelector": ",,,"},
        {"labelSelector": "a in (b"}, {"fieldSelector": "=,=="}, {"fieldSelector": "a"},
        {"labelSelector": "a" * 5000},
    ],
    ids=str,
)  # fmt: skip
async def test_a_spoiled_query_is_answered(verb, query):
    server = Server()
    kind = server.operations.kinds.named("pods")
    request = Request(verb=verb, kind=kind, namespace="default", query=query)
    code = 200
    try:
        if verb == "list":
            await server.verbs.answer(request, b"", "")
        else:
            Watch(request, server.operations.storage, bookmark_seconds=1)
    except Refusal as refusal:
        code = refusal.code
    assert code < 500
