"""The chart, installed: its objects on a control plane, and tokens as kubelet issues them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from .chart import rendered
from .client import NAMESPACES, Client, Object, Refused, node_path, pods_path
from .cluster import Cluster
from .plane import documented_roles
from .processes import until

AGENT = "hami-node-agent"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
POLICIES = f"{ADMISSION}/validatingadmissionpolicies"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
PATHS: Mapping[str, str] = {
    "ClusterRole": f"{RBAC}/clusterroles",
    "ClusterRoleBinding": f"{RBAC}/clusterrolebindings",
    "ValidatingAdmissionPolicy": POLICIES,
    "ValidatingAdmissionPolicyBinding": f"{ADMISSION}/validatingadmissionpolicybindings",
    "ValidatingWebhookConfiguration": f"{ADMISSION}/validatingwebhookconfigurations",
    "MutatingWebhookConfiguration": f"{ADMISSION}/mutatingwebhookconfigurations",
}
INSTALLED = (*PATHS, "ServiceAccount", "Role", "RoleBinding")


class Release:
    """A context manager, for a cluster with nodes; installed when it is entered, removed
    afterwards.

    ``tenant`` has Kubernetes' own role ``edit`` in the namespace.
    """

    def __init__(
        self, cluster: Cluster, *, image: str = "example.com/none:1", **values: Any
    ) -> None:
        self.cluster, self.namespace = cluster, cluster.namespace
        self._image = image
        self._admin = cluster.admin
        # The scheduler of these tests is a user and no service account.
        policies = {"trustedUsers": ["hami"], **values.pop("policies", {})}
        webhooks = {"pods": {"enabled": False}, "quotas": {"enabled": False}}
        values = {"policies": policies, "webhooks": webhooks, **values}
        self._clients: list[Client] = []
        # No workloads: services and agents of these tests are processes. The scheduler's rights are
        # there already, from docs/scheduler.md, which a test holds equal to the chart.
        there = {role["metadata"]["name"] for role in documented_roles()}
        self._objects = [
            thing
            for thing in rendered(values, namespace=self.namespace)
            if thing["kind"] in INSTALLED and thing["metadata"]["name"] not in there
        ]

    def __enter__(self) -> Release:
        for thing in self._objects:
            self._admin.create(self._path(thing), thing)
        self.tenant = self._tenant()
        self._node = self.cluster.nodes()[0]["metadata"]["name"]
        self.agent_pod(self._node)
        self._stray = self.client(AGENT)
        if self._policies():
            until("the policies are in force", lambda: self._refusals() == [422, 422])
        return self

    def __exit__(self, *_: object) -> None:
        for thing in reversed(self._objects):
            with suppress(Refused):
                self._admin.delete(f"{self._path(thing)}/{thing['metadata']['name']}")
        until("the policies are out of force", lambda: 422 not in self._refusals())
        for client in self._clients:
            client.close()

    def agent_on(self, node: str) -> Client:
        """A client with the rights of an agent's pod on this node."""
        return self.client(AGENT, self.agent_pod(node))

    def agent_pod(self, node: str) -> Mapping[str, str]:
        """The pod that the agent's token on this node is bound to; made when it is missing."""
        name = f"agent-{node}"
        pod = {
            "metadata": {"name": name},
            "spec": {
                "nodeName": node,
                "serviceAccountName": AGENT,
                "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "agent", "image": self._image}],
            },
        }
        try:
            found = self._admin.get(pods_path(self.namespace, name))
        except Refused:
            found = self.cluster.add_pod(pod)
        return {"kind": "Pod", "apiVersion": "v1", "name": name, "uid": found["metadata"]["uid"]}

    def client(self, account: str, bound_to: Mapping[str, str] | None = None) -> Client:
        """A client with a token of this service account."""
        client = Client(
            self.cluster.plane.url,
            token=self.token(account, bound_to),
            ca=self.cluster.plane.authority.certificate,
        )
        self._clients.append(client)
        return client

    def scheduler(self) -> Client:
        client = self.cluster.plane.client("hami")
        self._clients.append(client)
        return client

    def token(self, account: str, bound_to: Mapping[str, str] | None = None) -> str:
        path = f"{NAMESPACES}/{self.namespace}/serviceaccounts/{account}/token"
        spec = {"boundObjectRef": dict(bound_to)} if bound_to else {}
        return str(self._admin.create(path, {"spec": spec})["status"]["token"])

    def _tenant(self) -> Client:
        accounts = f"{NAMESPACES}/{self.namespace}/serviceaccounts"
        self._admin.create(accounts, {"metadata": {"name": "tenant"}})
        binding = {
            "metadata": {"name": "tenant"},
            "roleRef": {"apiGroup": RBAC.split("/")[2], "kind": "ClusterRole", "name": "edit"},
            "subjects": [{"kind": "ServiceAccount", "name": "tenant", "namespace": self.namespace}],
        }
        self._admin.create(f"{RBAC}/namespaces/{self.namespace}/rolebindings", binding)
        tenant = self.client("tenant")
        path = pods_path(self.namespace)
        until("the tenant may read pods", lambda: tenant.send("GET", path)[0] == 200)
        return tenant

    def warnings(self) -> list[Object]:
        """What the API server's type checker says about the policies' expressions."""
        found: list[Object] = []
        for thing in self._policies():
            name = thing["metadata"]["name"]
            status = until(f"policy {name} is checked", lambda name=name: self._checked(name))
            found += status["typeChecking"].get("expressionWarnings", [])
        return found

    def _checked(self, policy: str) -> Object | None:
        status: Object = self._admin.get(f"{POLICIES}/{policy}").get("status", {})
        return status if "typeChecking" in status else None

    def _policies(self) -> list[Object]:
        return [thing for thing in self._objects if thing["kind"] == "ValidatingAdmissionPolicy"]

    def _refusals(self) -> list[int]:
        """Each policy's answer to a first bad request; kube-apiserver takes changes up a little
        later.
        """
        node = status_of_node(self._node) + "?dryRun=All"
        pod = pods_path(self.namespace, f"agent-{self._node}") + "?dryRun=All"
        return [
            annotated(self._stray, node, node_identity="NVIDIA=lock")[0],
            annotated(self.tenant, pod, bind_phase="success")[0],
        ]

    def _path(self, thing: Object) -> str:
        kind = thing["kind"]
        if kind == "ServiceAccount":
            return f"{NAMESPACES}/{self.namespace}/serviceaccounts"
        if kind in ("Role", "RoleBinding"):
            where = thing["metadata"].get("namespace", self.namespace)
            return f"{RBAC}/namespaces/{where}/{kind.lower()}s"
        return PATHS[kind]


def annotated(client: Client, path: str, **annotations: str | None) -> tuple[int, str]:
    """Patch annotations (``hami.io/`` before, ``-`` for ``_``); the answer's status and message."""
    keys = {f"hami.io/{key.replace('_', '-')}": text for key, text in annotations.items()}
    return patched(client, path, {"metadata": {"annotations": keys}})


def patched(client: Client, path: str, patch: Mapping[str, Any]) -> tuple[int, str]:
    try:
        client.merge(path, patch)
    except Refused as error:
        return error.status, error.message
    return 200, ""


def status_of_node(name: str) -> str:
    return node_path(name) + "/status"


def status_of_pod(namespace: str, name: str) -> str:
    return pods_path(namespace, name) + "/status"
