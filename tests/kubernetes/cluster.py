"""One test's share of a control plane: nodes without machines, pods, a kube-scheduler, services."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hami.domain.kubernetes.objects import Metadata, Node
from hami.vendors.registry import load_vendors

from .client import NAMESPACES, NODES, Object, node_path, pods_path, quotas_path
from .objects import a_container
from .plane import ControlPlane, extender
from .processes import until
from .recount import COUNT, hardware, over_allocated, recount
from .service import Service

SCHEDULER = "hami-scheduler"
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"


class Cluster:
    """A context manager; at its end its pods, nodes, namespace and processes are removed."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.plane, self.folder = plane, folder
        self.admin = plane.admin
        self.namespace = f"test-{uuid.uuid4().hex[:8]}"
        self._services: list[Service] = []
        self._vendors = load_vendors()

    def __enter__(self) -> Cluster:
        self.add_namespace(self.namespace)
        self.plane.allow_hami(self.namespace)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for service in self._services:
            service.end()
        self.plane.stop_kube_scheduler()
        try:
            beyond = over_allocated(self.pods(), self.nodes()) if kind is None else {}
        finally:
            self._remove_everything()
        if kind is None:
            assert beyond == {}, "more in use than there is"

    # What there is.

    def add_namespace(self, name: str) -> str:
        self.admin.create(NAMESPACES, {"metadata": {"name": name}})
        account = f"{NAMESPACES}/{name}/serviceaccounts/default"
        until(f"the service account of {name}", lambda: self.admin.exists(account))
        return name

    def add_nodes(self, *names: str, devices: str = "t4x2", **annotations: str) -> None:
        """Ready nodes with simulated devices, whose agents need no node lock.

        ``devices`` as in ``mock.hami.io/devices``; ``annotations``' names are completed by
        ``hami.io/``, with ``-`` for ``_``.
        """
        more = {f"hami.io/{k.replace('_', '-')}": text for k, text in annotations.items()}
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda name: self._add_node(name, devices, more), names))

        def untainted() -> bool:
            return all(not node["spec"].get("taints") for node in self.nodes())

        until("the nodes are without taints", untainted)

    def nodes(self) -> list[Object]:
        return self.admin.list(NODES)

    def pods(self, namespace: str = "") -> list[Object]:
        """The pods; of all namespaces by default."""
        return self.admin.list(pods_path(namespace) if namespace else "/api/v1/pods")

    def pod(self, name: str) -> Object:
        return self.admin.get(pods_path(self.namespace, name))

    def add_pod(self, pod: Mapping[str, Any]) -> Object:
        return self.admin.create(pods_path(self.namespace), pod)

    def add_pods(self, *pods: Mapping[str, Any]) -> None:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(self.add_pod, pods))

    def remove_pod(self, name: str) -> None:
        self.admin.delete(pods_path(self.namespace, name), grace=0)

    def add_quota(self, name: str, **hard: str) -> None:
        """``limits_nvidia`` keys cannot be keywords: pass a mapping with ``**{...}``."""
        body = {"metadata": {"name": name}, "spec": {"hard": hard}}
        self.admin.create(quotas_path(self.namespace), body)

    def quota_used(self, name: str) -> Mapping[str, str]:
        quota = self.admin.get(quotas_path(self.namespace, name))
        return dict(quota.get("status", {}).get("used", {}))

    # What happens.

    def bound(self, *names: str, seconds: float = 30) -> list[Object]:
        """The pods, once each is on a node."""

        def all_bound() -> list[Object] | None:
            found = {pod["metadata"]["name"]: pod for pod in self.pods(self.namespace)}
            pods = [found[name] for name in names]
            return pods if all(pod["spec"].get("nodeName") for pod in pods) else None

        return until(
            f"pods {', '.join(names[:5])} are bound",
            all_bound,
            seconds=seconds,
            seen=lambda: [self.why(name) for name in names if self.why(name)][:3],
        )

    def refused(self, name: str, saying: str = "", *, seconds: float = 30) -> str:
        """kube-scheduler's message about a pod without a node, once there is one."""

        def said() -> str | None:
            why = self.why(name)
            return why if why and saying in why else None

        what = f"pod {name} is refused, saying {saying!r},"
        return until(what, said, seconds=seconds, seen=lambda: self.why(name))

    def why(self, name: str) -> str:
        """The message of condition PodScheduled; empty while there is none."""
        conditions = self.pod(name).get("status", {}).get("conditions", ())
        texts = [c.get("message", "") for c in conditions if c["type"] == "PodScheduled"]
        return texts[0] if texts else ""

    def events(self, pod: str, reason: str) -> list[str]:
        """The events' messages, in the spelling of both event APIs."""
        query = f"involvedObject.name={pod},reason={reason}"
        found = self.admin.list(f"{NAMESPACES}/{self.namespace}/events", fieldSelector=query)
        return [event["message"] for event in found]

    def writes(self, user: str, what: str = "", name: str = "") -> list[str]:
        """``VERB WHAT STATUS`` of one user's writes in this test's namespace."""
        return [
            f"{write.verb} {write.what} {write.status}"
            for write in self.plane.writes()
            if (write.user, write.namespace) == (user, self.namespace)
            and write.what.startswith(what)
            and name in ("", write.name)
        ]

    # Who acts.

    def kube_scheduler(
        self, url: str, *, election: Mapping[str, Any] | None = None, **fields: Any
    ) -> None:
        """A kube-scheduler with our extender at ``url``; ``fields`` replace some of its
        configuration.
        """
        self.plane.kube_scheduler(extender(url, **fields), profile=SCHEDULER, election=election)

    def service(self, name: str = "hami", *, server: str = "", **flags: object) -> Service:
        """Start ``hami scheduler``, and wait until it is ready; ``server`` is a proxy's address."""
        service = self.launched(name, server=server, **flags)
        service.ready()
        return service

    def launched(self, name: str = "hami", *, server: str = "", **flags: object) -> Service:
        """As ``service``, but without waiting until it is ready."""
        certificate, key = self.plane.authority.issue("hami-webhook", "127.0.0.1")
        flags = {
            "kubeconfig": self.plane.kubeconfig("hami", server=server),
            "cert_file": certificate,
            "key_file": key,
            **flags,
        }
        service = Service(name, self.folder, **flags)
        self._services.append(service)
        service.launch()
        return service

    def scheduled(self, **flags: object) -> Service:
        """A service, and a kube-scheduler that calls it."""
        service = self.service(**flags)
        self.kube_scheduler(service.url)
        return service

    def webhook(self, service: Service, **fields: Any) -> None:
        """Register the service's webhook for this test's namespace."""
        authority = self.plane.authority.certificate.read_bytes()
        webhook = {
            "name": "vgpu.hami.io",
            "clientConfig": {
                "url": service.webhook,
                "caBundle": base64.b64encode(authority).decode(),
            },
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": "Fail",
            "rules": [
                {
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    "resources": ["pods"],
                    "operations": ["CREATE"],
                }
            ],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": self.namespace}},
            **fields,
        }
        self.admin.create(WEBHOOKS, {"metadata": {"name": "hami"}, "webhooks": [webhook]})
        # kube-apiserver takes it up a little later: ask, without creating anything.
        probe = {"metadata": {"name": "probe"}, "spec": {"containers": [a_container(gpu=1)]}}

        def called() -> bool:
            answer = self.admin.create(pods_path(self.namespace) + "?dryRun=All", probe)
            return answer["spec"]["schedulerName"] == SCHEDULER

        until("the webhook is called", called)

    def agrees(self, service: Service) -> None:
        """Wait until the service's books agree with a recount of all annotations."""

        def same() -> bool:
            return service.used() == recount(self.pods(), self.nodes())

        def difference() -> object:
            theirs, ours = service.used(), recount(self.pods(), self.nodes())
            keys = {key for key in theirs.keys() | ours.keys() if theirs.get(key) != ours.get(key)}
            return {key: (theirs.get(key), ours.get(key)) for key in keys}

        until("the service agrees with a recount", same, seconds=15, seen=difference)

    # How it is done.

    def _add_node(self, name: str, devices: str, more: Mapping[str, str]) -> None:
        asked = Node(metadata=Metadata(name=name, annotations={"mock.hami.io/devices": devices}))
        annotations = {
            **self._vendors.simulated_annotations(asked, {}),
            "hami.io/node-identity": "NVIDIA=simulated,DCU=simulated",
            **more,
        }
        metadata = {"name": name, "annotations": annotations, "labels": {"name": name}}
        slots = sum(amount.slots for amount in hardware([{"metadata": metadata}]).values())
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        resources = {"cpu": "64", "memory": "512Gi", "pods": "1000", COUNT: str(slots)}
        ready = {
            "type": "Ready",
            "status": "True",
            "reason": "KubeletReady",
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        }
        status = {"capacity": resources, "allocatable": resources, "conditions": [ready]}
        self.admin.create(NODES, {"metadata": metadata, "status": status})

    def _remove_everything(self) -> None:
        self.admin.delete(WEBHOOKS)
        names = {pod["metadata"]["namespace"] for pod in self.pods()} | {self.namespace}
        for namespace in names:
            self.admin.delete(pods_path(namespace), grace=0)
        for namespace in names - {"default"}:
            self.admin.delete(f"{NAMESPACES}/{namespace}")
        for node in self.nodes():
            self.admin.delete(node_path(node["metadata"]["name"]))
        until("all pods and nodes are gone", lambda: not self.pods() and not self.nodes())
