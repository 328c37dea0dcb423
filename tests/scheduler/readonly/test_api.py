"""The read-only API: what is shown of nodes, devices, pods and quotas, page by page, and why."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

import msgspec
import pytest
from fastapi import FastAPI

from hami.domain.allocations import PodAllocation
from hami.domain.kubernetes.objects import NodeSpec, ResourceQuota, ResourceQuotaStatus
from hami.policy.filter.decision import Refused
from hami.scheduler.bookings.reservations import Phase
from hami.scheduler.pending.pending_pods import Refusal
from hami.scheduler.readonly.api import api_router

from ..builders import Cluster, a_node, a_pod, a_quota, bound, ended, granted


class Api:
    """The API over a cluster, called without a socket."""

    def __init__(self, cluster: Cluster, *, leading: bool = True, **more: Any) -> None:
        self.app = FastAPI()
        self.app.include_router(api_router(cluster.state, leading=lambda: leading, **more))

    async def answer(self, path: str, **query: Any) -> tuple[int, Any]:
        sent: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        query = {key.rstrip("_"): value for key, value in query.items()}
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET",
            "scheme": "http", "path": path, "raw_path": path.encode(), "root_path": "", "headers": [],
            "query_string": urlencode(query).encode(), "client": None, "server": None,
        }  # fmt: skip
        await self.app(scope, receive, send)
        body = b"".join(m.get("body", b"") for m in sent if m["type"] == "http.response.body")
        return sent[0]["status"], json.loads(body)

    async def get(self, path: str, **query: Any) -> Any:
        status, body = await self.answer(f"/api/v1{path}", **query)
        assert status == 200, body
        return body

    async def all_of(self, path: str, **query: Any) -> tuple[list[Any], int]:
        """The items of all pages, and how many pages there were."""
        items, pages, more = [], 0, ""
        while True:
            page = await self.get(path, **query, **({"continue": more} if more else {}))
            items, pages, more = items + page["items"], pages + 1, page["continue"]
            if not more:
                return items, pages


def a_cluster() -> Cluster:
    """n1 with two devices, n2 with one; p holds 3000 MiB of the first."""
    cluster = Cluster(a_node("n1", devices=2), a_node("n2"))
    cluster.sees(granted(a_pod("p", mem=3000, node="n1"), "n1", "n1-d0:3000"))
    return cluster


# Nodes and devices.


async def test_a_node_shows_what_it_has_and_uses():
    assert (await Api(a_cluster()).get("/nodes"))["items"][0] == {
        "name": "n1",
        "unschedulable": False,
        "devices": 2,
        "vendors": {
            "ACME": {
                "slots": 20, "usedSlots": 1, "memoryMiB": 16000, "usedMemoryMiB": 3000,
                "cores": 200, "usedCores": 0,
            }
        },
    }  # fmt: skip


async def test_one_node_shows_its_devices_and_the_pods_on_them():
    cluster = a_cluster()
    cluster.reserve(a_pod("q", mem=1000), "n1")
    node = await Api(cluster).get("/nodes/n1")
    assert [(d["id"], d["usedMemoryMiB"], d["pods"]) for d in node["inventory"]] == [
        ("n1-d0", 3000, ["default/p"]),
        ("n1-d1", 1000, ["default/q"]),
    ]


@pytest.mark.parametrize("limit", [1, 2, 1000])
async def test_the_list_of_devices_shows_the_pods_on_them_as_a_node_does(limit):
    cluster = a_cluster()
    cluster.reserve(a_pod("q", mem=1000), "n1")
    cluster.sees(granted(a_pod("r", mem=10, node="n2"), "n2", "n2-d0:10"))
    devices, _ = await Api(cluster).all_of("/devices", limit=limit)
    assert [(d["id"], d["pods"]) for d in devices] == [
        ("n1-d0", ["default/p"]),
        ("n1-d1", ["default/q"]),
        ("n2-d0", ["default/r"]),
    ]


async def test_a_device_is_shown_whole():
    (device,) = (await Api(a_cluster()).get("/devices", node="n2"))["items"]
    assert device == {
        "node": "n2", "id": "n2-d0", "vendor": "ACME", "index": 0, "model": "ACME One", "mode": "",
        "numa": 0, "healthy": True, "cordoned": False, "known": True, "pods": [], "slots": 10,
        "usedSlots": 0, "memoryMiB": 8000, "usedMemoryMiB": 0, "cores": 100, "usedCores": 0,
    }  # fmt: skip


async def test_cordoned_devices_and_unknown_usage_are_marked():
    cluster = Cluster(a_node("n1", devices=2, **{"hami.io/device-cordon": "n1-d1"}))
    cluster.sees(bound(a_pod("p", phase="Running"), "n1", {}))
    devices = (await Api(cluster).get("/devices"))["items"]
    assert [(d["cordoned"], d["known"]) for d in devices] == [(False, False), (True, False)]


async def test_an_unschedulable_node_is_marked():
    node = msgspec.structs.replace(a_node(), spec=NodeSpec(unschedulable=True))
    assert (await Api(Cluster(node)).get("/nodes/n1"))["unschedulable"]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, ["n1-d0", "n1-d1", "n2-d0"]),
        ({"node": "n2"}, ["n2-d0"]),
        ({"node": "n9"}, []),
        ({"vendor": "ACME"}, ["n1-d0", "n1-d1", "n2-d0"]),
        ({"vendor": "BOLT"}, []),
        ({"vendor": "ACME", "node": "n1"}, ["n1-d0", "n1-d1"]),
    ],
)
async def test_devices_can_be_chosen(query, expected):
    devices = (await Api(a_cluster()).get("/devices", **query))["items"]
    assert [device["id"] for device in devices] == expected


@pytest.mark.parametrize("path", ["/nodes/n9", "/pods/default/nobody/why", "/pods/other/p/why"])
async def test_what_is_not_known_is_404_with_its_name(path):
    status, body = await Api(a_cluster()).answer(f"/api/v1{path}")
    assert status == 404
    assert "is known" in body["detail"]


# Pages.


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 1000])
async def test_pages_show_everything_once_and_in_order(limit):
    cluster = Cluster(*(a_node(f"n{i}", devices=i % 4) for i in range(9)))
    for number in range(8):
        node = f"n{number % 3 + 1}"
        cluster.sees(granted(a_pod(f"p{number}", mem=10), node, f"{node}-d0:10"))
        cluster.state.quota_changed(a_quota(f"q{number}", mem="5"))
    api = Api(cluster)
    nodes, _ = await api.all_of("/nodes", limit=limit)
    assert [node["name"] for node in nodes] == [f"n{i}" for i in range(9)]
    devices, pages = await api.all_of("/devices", limit=limit)
    assert [d["id"] for d in devices] == [f"n{i}-d{j}" for i in range(9) for j in range(i % 4)]
    assert pages == -(-len(devices) // limit)
    pods, _ = await api.all_of("/pods", limit=limit)
    assert [pod["name"] for pod in pods] == [f"p{i}" for i in range(8)]
    quotas, _ = await api.all_of("/quotas", limit=limit)
    assert [quota["name"] for quota in quotas] == [f"q{i}" for i in range(8)]


async def test_a_page_goes_on_where_it_was_although_that_node_is_gone():
    cluster = Cluster(*(a_node(f"n{i}", devices=2) for i in range(4)))
    api = Api(cluster)
    first = await api.get("/devices", limit=3)
    cluster.state.node_gone(a_node("n1"))
    rest = await api.get("/devices", **{"continue": first["continue"]})
    assert [d["id"] for d in rest["items"]] == ["n2-d0", "n2-d1", "n3-d0", "n3-d1"]


@pytest.mark.parametrize(
    ("path", "query", "expected"),
    [
        ("/nodes", {"limit": 0}, 422),
        ("/nodes", {"limit": 1001}, 422),
        ("/nodes", {"limit": "many"}, 422),
        ("/pods", {"phase": "flying"}, 422),
        ("/devices", {"continue": "n1"}, 400),
        ("/devices", {"continue": "n1/ACME/x/d"}, 400),
        ("/nodes", {"continue": "zzz"}, 200),
    ],
)
async def test_a_bad_question_is_the_callers_fault(path, query, expected):
    status, _ = await Api(a_cluster()).answer(f"/api/v1{path}", **query)
    assert status == expected


# Pods.


async def four_phases() -> Cluster:
    """b is bound, r reserved, g on its way, w waits; the last in another namespace."""
    cluster = Cluster(a_node("n1"), a_node("n2"))
    cluster.sees(granted(a_pod("b", mem=500), "n1", "n1-d0:500"))
    cluster.reserve(a_pod("r", mem=1000), "n2")
    cluster.reserve(a_pod("g", mem=1000), "n2")
    cluster.state.reservations["uid-default-g"].phase = Phase.BINDING
    cluster.sees(a_pod("w", namespace="other"), a_pod("x", mem=None), ended(a_pod("e", node="n1")))
    return cluster


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, ["b", "g", "r", "w"]),
        ({"namespace": "other"}, ["w"]),
        ({"node": "n2"}, ["g", "r"]),
        ({"phase": "bound"}, ["b"]),
        ({"phase": "reserved"}, ["r"]),
        ({"phase": "binding"}, ["g"]),
        ({"phase": "waiting"}, ["w"]),
        ({"phase": "waiting", "node": "n1"}, []),
    ],
)
async def test_pods_can_be_chosen(query, expected):
    pods = (await Api(await four_phases()).get("/pods", **query))["items"]
    assert [pod["name"] for pod in pods] == expected


async def test_a_pod_shows_what_each_container_holds():
    cluster = Cluster(a_node("n1", devices=2))
    cluster.sees(granted(a_pod("p", init_mem=10, mem=20), "n1", "n1-d0:10", "n1-d1:20"))
    (pod,) = (await Api(cluster).get("/pods"))["items"]

    def holding(device, memory):
        return [{"id": device, "vendor": "ACME", "memoryMiB": memory, "cores": 0, "extra": {}}]

    assert pod == {
        "namespace": "default", "name": "p", "uid": "uid-default-p", "phase": "bound", "node": "n1",
        "containers": [
            {"name": "init", "kind": "init", "devices": holding("n1-d0", 10)},
            {"name": "main", "kind": "app", "devices": holding("n1-d1", 20)},
        ],
    }  # fmt: skip


# Why.


async def why(cluster: Cluster, pod: str = "p", namespace: str = "default") -> Any:
    return await Api(cluster).get(f"/pods/{namespace}/{pod}/why")


def refusing(cluster: Cluster, pod) -> None:
    """What the extender does with a pod that fits nowhere."""
    cluster.sees(pod)
    outcome = cluster.reserve(pod)
    assert not isinstance(outcome, PodAllocation)
    assert isinstance(outcome, Refused)
    refusal = Refusal(at=1_700_000_000.0, outcome=outcome)
    cluster.state.pending.refused(pod, list(cluster.state.nodes), refusal)


async def test_a_waiting_pod_says_how_many_nodes_refused_it_and_why():
    cluster = Cluster(*(a_node(f"n{i}") for i in range(5)), a_node("small", memory=10))
    cluster.sees(*(granted(a_pod(f"f{i}", mem=7900), f"n{i}", f"n{i}-d0:7900") for i in range(5)))
    refusing(cluster, a_pod("p", mem=1000))
    answer = await why(cluster)
    assert (answer["phase"], answer["at"], answer["woken"]) == (
        "waiting", "2023-11-14T22:13:20+00:00", False,
    )  # fmt: skip
    assert answer["message"].startswith("0/6 nodes fit: ")
    (reason,) = answer["reasons"]
    assert reason == {
        "reason": "1/1 CardInsufficientMemory", "nodes": 6, "examples": ["n0", "n1", "n2"]
    }  # fmt: skip


async def test_a_pod_that_waits_for_quota_says_whose():
    cluster = a_cluster()
    cluster.state.quota_changed(a_quota("team", mem="3500"))
    refusing(cluster, a_pod("q", mem=1000))
    answer = await why(cluster, "q")
    assert any("ResourceQuota default/team: limits.acme.com/mem" in d for d in answer["details"])
    assert any("used 3000 MiB + asked 1000 MiB > limit 3500 MiB" in d for d in answer["details"])
    limits = answer["quotas"][0]["limits"]
    assert limits == {"limits.acme.com/mem": {"hard": 3500, "used": 3000, "left": 500}}


async def test_a_pod_with_a_request_that_nobody_can_read_says_so():
    cluster = a_cluster()
    pod = a_pod("q")
    cluster.sees(pod)
    cluster.state.pending.refused(
        pod, ["n1"], Refusal(at=0.0, text="acme.com/mem: '-5' is negative")
    )
    answer = await why(cluster, "q")
    assert answer["message"] == "acme.com/mem: '-5' is negative"
    assert answer["reasons"] == []


async def test_a_pod_that_was_never_offered_a_node_says_so():
    cluster = a_cluster()
    cluster.sees(a_pod("q"))
    answer = await why(cluster, "q")
    assert (answer["phase"], answer["at"]) == ("waiting", "")
    assert "has not offered it any node" in answer["message"]


@pytest.mark.parametrize(
    ("pod", "namespace", "phase", "message"),
    [
        ("b", "default", "bound", "it is bound to node n1"),
        (
            "r",
            "default",
            "reserved",
            "it has a place on node n2; kube-scheduler is about to bind it",
        ),
        ("g", "default", "binding", "it is being bound to node n2"),
        ("x", "default", "unmanaged", "it asks for no device that a vendor manages here"),
        ("e", "default", "ended", "it has ended and holds nothing any more"),
    ],
)
async def test_every_other_pod_says_where_it_stands(pod, namespace, phase, message):
    cluster = await four_phases()
    cluster.sees(a_pod("r"), a_pod("g"))
    answer = await why(cluster, pod, namespace)
    assert (answer["phase"], answer["message"]) == (phase, message)


async def test_a_pod_for_another_scheduler_says_which():
    pod = a_pod("q")
    other = msgspec.structs.replace(
        pod, spec=msgspec.structs.replace(pod.spec, scheduler_name="default-scheduler")
    )
    cluster = a_cluster()
    cluster.sees(other)
    answer = await why(cluster, "q")
    assert answer["phase"] == "unmanaged"
    assert "its scheduler is 'default-scheduler', not 'hami-scheduler'" in answer["message"]


async def test_a_bound_pod_whose_allocation_cannot_be_read_names_the_problem():
    cluster = Cluster(a_node())
    cluster.sees(bound(a_pod("p"), "n1", {}))
    answer = await why(cluster)
    assert answer["phase"] == "bound"
    assert any("acme.com/allocated" in problem for problem in answer["problems"])


async def test_of_two_pods_of_one_name_the_living_one_is_explained():
    cluster = a_cluster()
    cluster.sees(ended(a_pod("p", uid="old", created="2030-01-01T00:00:00Z", node="n1")))
    assert (await why(cluster))["phase"] == "bound"


# Quotas and the whole.


async def test_a_quota_shows_limit_usage_and_what_is_left():
    cluster = a_cluster()
    cluster.state.quota_changed(a_quota("team", mem="2k", gpu="4"))
    (quota,) = (await Api(cluster).get("/quotas"))["items"]
    assert quota == {
        "namespace": "default",
        "name": "team",
        "limits": {
            "limits.acme.com/gpu": {"hard": 4, "used": 1, "left": 3},
            "limits.acme.com/mem": {"hard": 2000, "used": 3000, "left": -1000},
        },
        "countedByKubernetes": {},
    }


async def test_what_kubernetes_counts_itself_is_shown_as_it_writes_it():
    cluster = a_cluster()
    quota = a_quota("team")
    spec = msgspec.structs.replace(
        quota.spec, hard={"requests.acme.com/gpu": "4", "requests.cpu": "9"}
    )
    status = ResourceQuotaStatus(used={"requests.acme.com/gpu": "1"})
    cluster.state.quota_changed(ResourceQuota(metadata=quota.metadata, spec=spec, status=status))
    (shown,) = (await Api(cluster).get("/quotas"))["items"]
    assert shown["countedByKubernetes"] == {"requests.acme.com/gpu": {"hard": "4", "used": "1"}}


async def test_quotas_on_nothing_of_ours_are_not_shown():
    cluster = a_cluster()
    cluster.state.quota_changed(a_quota("empty"))
    cluster.state.quota_changed(a_quota("team", namespace="other", mem="5"))
    assert [q["name"] for q in (await Api(cluster).get("/quotas"))["items"]] == ["team"]
    assert (await Api(cluster).get("/quotas", namespace="default"))["items"] == []


@pytest.mark.parametrize("leading", [True, False])
async def test_the_summary(leading):
    cluster = await four_phases()
    cluster.state.quota_changed(a_quota("team", mem="5"))
    assert await Api(cluster, leading=leading).get("/summary") == {
        "leading": leading,
        "nodes": 2,
        "vendors": {
            "ACME": {
                "devices": 2, "healthy": 2, "slots": 20, "usedSlots": 3, "memoryMiB": 16000,
                "usedMemoryMiB": 2500, "cores": 200, "usedCores": 0,
            }
        },
        "pods": {"waiting": 1, "reserved": 1, "binding": 1, "bound": 1},
        "quotas": 1,
    }  # fmt: skip


async def test_the_description_names_every_route_and_its_shape():
    api = Api(a_cluster())
    _, openapi = await api.answer("/openapi.json")
    assert {path.removeprefix("/api/v1") for path in openapi["paths"]} == {
        "/nodes", "/nodes/{name}", "/devices", "/pods", "/pods/{namespace}/{name}/why", "/quotas",
        "/elasticquotas", "/summary",
    }  # fmt: skip
    for path, route in openapi["paths"].items():
        shape = route["get"]["responses"]["200"]["content"]["application/json"]["schema"]
        assert "$ref" in shape, path
    page = openapi["components"]["schemas"]["DevicePage"]["properties"]
    assert set(page) == {"items", "continue"}
    assert "memoryMiB" in openapi["components"]["schemas"]["DeviceView"]["properties"]
