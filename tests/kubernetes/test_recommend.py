"""``hami recommend`` on a real API server: its pod proxy, its RBAC, a Deployment's real pods."""

from __future__ import annotations

import json
import re
import shlex
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hami.cli.app import app
from hami.monitor.node_api import node_json
from hami.monitor.usage_history import HourOfUse
from tests.monitor.tables import GIB, NOW, a_node, a_slice, held

from .client import NAMESPACES, Object, pods_path
from .objects import a_pod
from .processes import until
from .release import RBAC

PAGE = (Path(__file__).parents[2] / "docs" / "recommend.md").read_text()
LABELS = {"app.kubernetes.io/name": "hami", "app.kubernetes.io/component": "monitor"}
HOUR = HourOfUse(minutes=60, max_used_bytes=GIB, p95_utilisation=10.0)


def this_machine() -> str:
    """An address of it; the API server's proxy goes to no loopback address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError as error:
            pytest.skip(f"this machine has no address but the loopback's: {error}")
        return str(probe.getsockname()[0])


@contextmanager
def a_monitor(host: str, answer: Callable[[], bytes]) -> Iterator[int]:
    """Yields its port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            assert self.path == "/api/v1/node"
            body = answer()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Silent."""

    with ThreadingHTTPServer((host, 0), Handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()


def role_of_the_page() -> Object:
    """The rules that ``kubectl create role`` makes of the page's command."""
    (command,) = re.findall(r"^    kubectl .* create role (.*)$", PAGE, re.MULTILINE)
    name, _, verbs, _, resources = shlex.split(command)
    rule = {"apiGroups": [""], "verbs": verbs.split(","), "resources": resources.split(",")}
    return {"metadata": {"name": name}, "rules": [rule]}


@pytest.fixture
def pods(cluster) -> Iterator[list[Object]]:
    """Two pods of Deployment ``train`` on node n1."""
    cluster.add_nodes("n1")
    labels = {"app": "train"}
    template = a_pod("", spec={"nodeName": "n1"}, cpu=1)
    template["metadata"] = {"labels": labels}
    template["spec"].pop("terminationGracePeriodSeconds")
    apps = f"/apis/apps/v1/namespaces/{cluster.namespace}"
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    cluster.admin.create(f"{apps}/deployments", {"metadata": {"name": "train"}, "spec": spec})

    def replicas() -> list[Object]:
        found = cluster.admin.list(pods_path(cluster.namespace), labelSelector="app=train")
        return found if len(found) == 2 else []

    yield until("the Deployment has its pods", replicas)
    cluster.admin.delete(f"{apps}/deployments/train")
    until("nobody makes pods any more", lambda: not cluster.admin.list(f"{apps}/replicasets"))


def test_a_deployment_as_the_page_says(cluster, pods):
    host, namespace = this_machine(), cluster.namespace

    def answer() -> bytes:
        slices = [
            a_slice(
                pod["metadata"]["name"], held(guarantee=30), pod_uid=pod["metadata"]["uid"],
                namespace=namespace, created_at=NOW - 7200,
            )
            for pod in pods
        ]  # fmt: skip
        return node_json(a_node(*slices), lambda *_: HOUR)

    monitor = a_pod("monitor", spec={"nodeName": "n1"})
    monitor["metadata"]["labels"] = LABELS
    cluster.add_pod(monitor)
    status = {"podIP": host, "podIPs": [{"ip": host}]}
    cluster.admin.merge(f"{pods_path(namespace, 'monitor')}/status", {"status": status})
    accounts = f"{NAMESPACES}/{namespace}/serviceaccounts"
    cluster.admin.create(accounts, {"metadata": {"name": "jane"}})
    token = cluster.admin.create(f"{accounts}/jane/token", {"spec": {}})["status"]["token"]
    kubeconfig = cluster.plane.kubeconfig("jane", token=token)
    with a_monitor(host, answer) as port:

        def said():
            options = ["-n", namespace, "--monitor-namespace", namespace, "--monitor-port", port]
            arguments = ["recommend", "--json", *map(str, options)]
            return CliRunner().invoke(app, arguments, env={"KUBECONFIG": str(kubeconfig)})

        refused = said()
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert "403 Forbidden" in refused.stderr
        roles = f"{RBAC}/namespaces/{namespace}"
        role = role_of_the_page()
        only_pods = {**role, "rules": [{**role["rules"][0], "resources": ["pods"]}]}
        cluster.admin.create(f"{roles}/roles", only_pods)
        binding = {
            "metadata": {"name": "jane"},
            "roleRef": {"apiGroup": RBAC.split("/")[2], "kind": "Role", "name": "ask-monitors"},
            "subjects": [{"kind": "ServiceAccount", "name": "jane", "namespace": namespace}],
        }
        cluster.admin.create(f"{roles}/rolebindings", binding)

        def without_proxy() -> bool:
            return 'cannot get resource "pods/proxy"' in said().stderr

        until("the right to list pods alone is not enough", without_proxy)
        cluster.admin.merge(f"{roles}/roles/ask-monitors", role)
        found = until("the role of the page is enough", lambda: json.loads(said().stdout or "{}"))
    (train,) = found["workloads"]
    assert (train["kind"], train["name"], len(train["pods"])) == ("Deployment", "train", 2)
    assert train["couldAsk"] == {"memoryMiB": 1280, "cores": 15}
    assert found["silent"] == []
