"""Elastic quotas for tests: the chart's definitions, builders of objects, a team's view."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import yaml

from .chart import CHART
from .client import NAMESPACES, Object, Refused, pods_path
from .cluster import Cluster
from .objects import a_pod
from .processes import until

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
NOS, OURS = "/apis/nos.nebuly.com/v1alpha1", "/apis/quota.hami.io/v1alpha1"
MEMORY = "nos.nebuly.com/gpu-memory"
LABEL = "nos.nebuly.com/capacity"


def definitions() -> list[Object]:
    return [yaml.safe_load(file.read_text()) for file in sorted((CHART / "crds").glob("*.yaml"))]


def quotas(namespace: str, name: str = "", plural: str = "elasticquotas") -> str:
    return f"{NOS}/namespaces/{namespace}/{plural}" + (f"/{name}" if name else "")


def a_quota(name: str = "q", kind: str = "ElasticQuota", **spec: object) -> Object:
    return {
        "apiVersion": "nos.nebuly.com/v1alpha1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }


def undefine(cluster: Cluster) -> None:
    """Remove the definitions, and with them all quotas."""
    names = [definition["metadata"]["name"] for definition in definitions()]
    for name in names:
        with suppress(Refused):
            cluster.admin.delete(f"{CRDS}/{name}")
    for name in names:
        until(f"{name} is gone", lambda name=name: not cluster.admin.exists(f"{CRDS}/{name}"))


def define(cluster: Cluster) -> None:
    """Create the chart's definitions, and wait until they are served."""
    for definition in definitions():
        cluster.admin.create(CRDS, definition)
    composites = quotas("default", plural="compositeelasticquotas")
    served(cluster, quotas("default"), composites, f"{OURS}/quotatrees")


def served(cluster: Cluster, *paths: str) -> None:
    """Wait until a resource is served; a new one answers 404 at first, and then 429 for a moment."""
    for path in paths:
        until(f"{path} is served", lambda path=path: cluster.admin.get(path), passing=(Refused,))


class Team:
    """A namespace with an ElasticQuota of ``least`` GB; each of its pods has a whole device."""

    def __init__(self, cluster: Cluster, name: str, least: int) -> None:
        self._admin = cluster.admin
        self._name = name
        self.namespace = cluster.add_namespace(f"{cluster.namespace}-{name}")
        self._quota = quotas(self.namespace, "quota")
        self._admin.create(quotas(self.namespace), a_quota("quota", min={MEMORY: least}))

    def asks(self, number: int, **asks: object) -> str:
        """Create a pod; its name."""
        name = f"{self._name}-{number}"
        self._admin.create(pods_path(self.namespace), a_pod(name, **asks))
        return name

    def runs(self, number: int, **asks: object) -> str:
        """Create a pod, and wait until it is bound and its kubelet would have begun; its name."""
        name = self.asks(number, **asks)
        self.comes_in(name)
        return name

    def comes_in(self, name: str) -> None:
        path = pods_path(self.namespace, name)
        until(f"{name} is bound", lambda: self._admin.get(path)["spec"].get("nodeName"),
              seen=lambda: self._admin.get(path).get("status"))  # fmt: skip
        self._admin.merge(f"{path}/status", {"status": {"phase": "Running"}})

    def waits(self, name: str) -> None:
        """Wait until kube-scheduler says that no node takes the pod."""

        def refused() -> bool:
            pod = self._admin.get(pods_path(self.namespace, name))
            said = pod.get("status", {}).get("conditions", ())
            return any(c["type"] == "PodScheduled" and c["status"] == "False" for c in said)

        until(f"{name} is refused", refused)

    def bound(self) -> list[str]:
        pods = self._admin.list(pods_path(self.namespace))
        return sorted(p["metadata"]["name"] for p in pods if p["spec"].get("nodeName"))

    def labels(self) -> dict[str, str]:
        """nos' labels, by pod."""
        return {
            pod["metadata"]["name"]: pod["metadata"].get("labels", {}).get(LABEL, "")
            for pod in self._admin.list(pods_path(self.namespace))
        }

    def used(self) -> str | None:
        """The GB in use according to the quota's status."""
        used = self._admin.get(self._quota).get("status", {}).get("used", {})
        return None if MEMORY not in used else str(used[MEMORY])

    def events(self, pod: str, reason: str) -> list[str]:
        query = f"involvedObject.name={pod},reason={reason}"
        path = f"{NAMESPACES}/{self.namespace}/events"
        return [event["message"] for event in self._admin.list(path, fieldSelector=query)]


def shows(teams: Sequence[Team], *gigabytes: int) -> None:
    """Wait until the quotas' status says that these GB are used."""
    wanted = [str(each) for each in gigabytes]
    until(f"{gigabytes} are used", lambda: [team.used() for team in teams] == wanted,
          seen=lambda: [team.used() for team in teams])  # fmt: skip
