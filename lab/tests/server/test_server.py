"""The server as a whole: addresses, tokens, certificates, direct access, tables, protobuf."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import stat

import aiohttp
import pytest
from hami_lab.api import ApiServer, TlsFiles
from hami_lab.api.objects.refusals import Refusal

from hami.domain.errors import ConfigError

from .conftest import CONFIG_MAPS, PODS


def a_pod(name: str = "p") -> dict:
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "b:1", "resources": {"limits": {"a.b/c": 3000}}}]},
    }  # fmt: skip


async def test_a_token_is_asked_for():
    async with ApiServer(token="secret") as server, aiohttp.ClientSession(server.url) as client:
        async with client.get("/api/v1/pods") as answer:
            assert (answer.status, (await answer.json())["reason"]) == (401, "Unauthorized")
        wrong = {"Authorization": "Bearer wrong"}
        async with client.get("/api/v1/pods", headers=wrong) as answer:
            assert answer.status == 401
        right = {"Authorization": "Bearer secret"}
        async with client.get("/api/v1/pods", headers=right) as answer:
            assert answer.status == 200
        async with client.get("/readyz") as answer:
            assert answer.status == 200


async def test_the_kubeconfig_is_all_a_client_needs(tmp_path):
    files = TlsFiles.self_signed(tmp_path)
    async with ApiServer(token="secret", tls=files) as server:
        config = server.kubeconfig()
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        context = ssl.create_default_context(cadata=authority)
        headers = {"Authorization": f"Bearer {user['token']}"}
        connector = aiohttp.TCPConnector(ssl=context)
        async with (
            aiohttp.ClientSession(cluster["server"], connector=connector) as client,
            client.get("/api/v1/nodes", headers=headers) as answer,
        ):
            assert answer.status == 200
        root = server.get("configmaps", "kube-root-ca.crt", namespace="default")
        assert root["data"]["ca.crt"] == authority
        await asyncio.sleep(0.01)


def test_a_private_key_is_for_its_owner_alone(tmp_path):
    files = TlsFiles.self_signed(tmp_path)
    assert stat.S_IMODE(files.key.stat().st_mode) == 0o600


async def test_a_port_that_is_taken_is_the_users_business(server):
    port = int(server.url.rpartition(":")[2])
    with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{port}"):
        await ApiServer().start(port=port)


async def test_a_server_stops_with_watches_open(client, server):
    async with client.get(CONFIG_MAPS, params={"watch": "1"}) as answer:
        await answer.content.readline()
        async with asyncio.timeout(5):
            await server.stop()
            assert await answer.content.read() == b""


async def test_the_simulation_writes_without_http_and_by_the_same_rules(server):
    created = await server.create(a_pod())
    assert created["metadata"]["namespace"] == "default"
    assert created["spec"]["containers"][0]["resources"]["limits"] == {"a.b/c": "3k"}
    patched = await server.patch(
        "pods", "p", {"status": {"phase": "Running"}}, namespace="default", subresource="status"
    )
    assert patched["status"]["phase"] == "Running"
    assert server.get("pods", "p", namespace="default") == patched
    assert server.objects("pods") == [patched]
    await server.delete("pods", "p", namespace="default")
    assert server.objects("pods") == []
    with pytest.raises(Refusal, match=r"metadata\.name"):
        await server.create({**a_pod(), "metadata": {"name": "A_"}})


async def test_a_manifest_is_not_changed_by_being_created(server):
    manifest = a_pod()
    await server.create(manifest)
    assert manifest == a_pod()


async def test_a_kind_that_is_not_known_says_so(server):
    with pytest.raises(ConfigError, match="no kind 'Frob' in 'v1'"):
        await server.create({"apiVersion": "v1", "kind": "Frob", "metadata": {"name": "a"}})


@pytest.mark.parametrize(
    ("status", "tainted"), [("True", False), ("False", True), ("Unknown", True)]
)
async def test_a_node_is_tainted_while_it_is_not_ready(server, status, tainted):
    node = {
        "kind": "Node",
        "metadata": {"name": "n"},
        "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]},
    }
    await server.create(node)
    for reported in ("True", status):
        conditions = {"status": {"conditions": [{"type": "Ready", "status": reported}]}}
        await server.patch("nodes", "n", conditions, subresource="status")
    keys = [taint["key"] for taint in server.get("nodes", "n")["spec"]["taints"]]
    assert keys == (["a", "node.kubernetes.io/not-ready"] if tainted else ["a"])


TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}


async def test_kubectl_gets_its_columns(server, client):
    await server.create(a_pod())
    node = {
        "kind": "Node",
        "metadata": {"name": "n1"},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }
    await server.create(node)
    expected = {
        PODS: {"Name": "p", "Ready": "0/1", "Status": "Pending", "Restarts": "0", "Node": "<none>"},
        "/api/v1/nodes": {"Name": "n1", "Status": "Ready", "Roles": "<none>"},
        "/api/v1/namespaces/default": {"Name": "default", "Status": "Active"},
    }
    for path, cells in expected.items():
        async with client.get(path, headers=TABLE) as answer:
            table = await answer.json()
        assert table["kind"] == "Table"
        columns = [column["name"] for column in table["columnDefinitions"]]
        shown = dict(zip(columns, table["rows"][0]["cells"], strict=True))
        assert {key: shown[key] for key in cells} == cells


async def test_a_watch_of_tables_sends_rows(server, client):
    async with client.get(PODS, params={"watch": "1"}, headers=TABLE) as answer:
        await server.create(a_pod())
        event = json.loads(await answer.content.readline())
    assert event["object"]["kind"] == "Table"
    assert event["object"]["rows"][0]["cells"][0] == "p"


async def test_a_client_that_leaves_is_forgotten(server, client):
    async with client.get(CONFIG_MAPS, params={"watch": "1"}) as answer:
        await answer.content.readline()
        assert len(server._application._watches) == 1
    async with asyncio.timeout(5):
        while server._application._watches:
            await asyncio.sleep(0.01)


PROTOBUF = {"Content-Type": "application/vnd.kubernetes.protobuf"}


def field(number: int, value: bytes | str) -> bytes:
    value = value.encode() if isinstance(value, str) else value
    assert len(value) < 128
    return bytes([number << 3 | 2, len(value)]) + value


def protobuf(version: str, kind: str, body: bytes) -> bytes:
    return b"k8s\x00" + field(1, field(1, version) + field(2, kind)) + field(2, body)


async def test_a_binding_may_be_protobuf(server, client):
    await server.create(a_pod())
    annotation = field(1, "a") + field(2, "b")
    body = field(1, field(1, "p") + field(12, annotation)) + field(
        2, field(1, "Node") + field(3, "n1")
    )
    data = protobuf("v1", "Binding", body)
    async with client.post(f"{PODS}/p/binding", data=data, headers=PROTOBUF) as answer:
        assert answer.status == 201, await answer.text()
    pod = server.get("pods", "p", namespace="default")
    assert (pod["spec"]["nodeName"], pod["metadata"]["annotations"]) == ("n1", {"a": "b"})


async def test_a_lease_in_protobuf_has_its_microseconds(server, client):
    time = bytes(
        [1 << 3, 0x80, 0xA0, 0xBF, 0xD1, 0x06, 2 << 3, 0xE8, 0x07]
    )  # 1781518336 s, 1000 ns
    data = protobuf(
        "coordination.k8s.io/v1",
        "Lease",
        field(1, field(1, "l")) + field(2, field(1, "me") + field(4, time)),
    )
    path = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
    async with client.post(path, data=data, headers=PROTOBUF) as answer:
        spec = (await answer.json())["spec"]
    assert spec == {"holderIdentity": "me", "renewTime": "2026-06-15T10:12:16.000001Z"}


@pytest.mark.parametrize(
    ("data", "status"),
    [
        pytest.param(
            protobuf("apps/v1", "Deployment", b""), 415, id="a kind that is not in the table"
        ),
        pytest.param(b"{}", 400, id="no envelope"),
        pytest.param(b"k8s\x00\xff\xff\xff", 400, id="a number that does not end"),
        pytest.param(protobuf("v1", "Binding", b"\x0a\x7f"), 400, id="a field that is cut off"),
        pytest.param(protobuf("v1", "Binding", b"\x08\x01"), 400, id="a number for a message"),
    ],
)
async def test_other_protobuf_is_refused(client, data, status):
    async with client.post(CONFIG_MAPS, data=data, headers=PROTOBUF) as answer:
        assert answer.status == status


async def test_openapi_tells_kubectl_that_the_server_checks_fields(client):
    async with client.get("/openapi/v3") as answer:
        paths = (await answer.json())["paths"]
    async with client.get(paths["api/v1"]["serverRelativeURL"]) as answer:
        document = await answer.json()
    patch = document["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]["patch"]
    assert "fieldValidation" in [parameter["name"] for parameter in patch["parameters"]]


@pytest.mark.parametrize("depth", [150, 100_000])
async def test_a_deeply_nested_body_does_no_harm(client, depth):
    deep = '{"a":' * depth + "1" + "}" * depth
    body = f'{{"metadata":{{"name":"a"}},"data":{deep}}}'
    async with client.post(
        CONFIG_MAPS, data=body, headers={"Content-Type": "application/json"}
    ) as answer:
        assert answer.status == 400


async def test_a_pod_of_a_missing_namespace_is_refused_even_in_process(server):
    pod = a_pod()
    pod["metadata"]["namespace"] = "none"
    with pytest.raises(Refusal, match='namespaces "none" not found'):
        await server.create(pod)
