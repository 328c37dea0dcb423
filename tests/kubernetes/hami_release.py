"""HAMi 2.10 in a cluster: the objects of its chart, and what its scheduler and plugin leave behind."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from .client import NAMESPACES, Client, Object, Refused, pods_path

APPS = "/apis/apps/v1"
HOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"


class HamiRelease:
    """A context manager: its objects are there while the block runs; no process of HAMi's runs."""

    def __init__(self, admin: Client, namespace: str, **values: Any) -> None:
        self.admin, self.namespace, self.values = admin, namespace, values

    def __enter__(self) -> HamiRelease:
        for path, thing in self._objects():
            self.admin.create(path, thing)
        return self

    def __exit__(self, *_: object) -> None:
        for path, thing in self._objects():
            with suppress(Refused):
                self.admin.delete(f"{path}/{thing['metadata']['name']}", grace=0)

    def _objects(self) -> list[tuple[str, Object]]:
        space = f"{NAMESPACES}/{self.namespace}"
        apps = f"{APPS}/namespaces/{self.namespace}"
        return [
            *((f"{space}/serviceaccounts", {"metadata": {"name": f"hami-{part}"}}) for part in ("scheduler", "device-plugin")),
            (f"{apps}/deployments", self._workload("scheduler", replicas=1)),
            (f"{apps}/daemonsets", self._workload(
                "device-plugin", {"gpu": "on"},
                updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}},
            )),
            (HOOKS, self._hook()),
            (f"{space}/secrets", self._secret()),
        ]  # fmt: skip

    def _workload(
        self, part: str, selector: Mapping[str, str] | None = None, **spec: Any
    ) -> Object:
        labels = {
            "app.kubernetes.io/component": f"hami-{part}",
            "app.kubernetes.io/name": "hami",
            "app.kubernetes.io/instance": "hami",
        }
        pod = {
            "serviceAccountName": f"hami-{part}",
            "nodeSelector": dict(selector or {}),
            # No kubelet ends them.
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": part, "image": "example.com/none:1"}],
        }
        return {
            "metadata": {
                "name": f"hami-{part}",
                "labels": {**labels, "app.kubernetes.io/version": "2.10.0"},
            },
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": {**labels, "hami.io/webhook": "ignore"}},
                    "spec": pod,
                },
                **spec,
            },
        }

    def _hook(self) -> Object:
        """Nobody answers it, as when its scheduler is down."""
        rule = {
            "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"],
        }  # fmt: skip
        selector = {
            "matchExpressions": [
                {"key": "kubernetes.io/metadata.name", "operator": "In", "values": [self.namespace]}
            ]
        }
        hook = {
            "name": "vgpu.hami.io",
            "clientConfig": {"url": "https://127.0.0.1:1/webhook"},
            "admissionReviewVersions": ["v1beta1", "v1"],
            "sideEffects": "None",
            "failurePolicy": "Ignore",
            "rules": [rule],
            "namespaceSelector": selector,
        }
        return {"metadata": {"name": "hami-webhook"}, "webhooks": [hook]}

    def _secret(self) -> Object:
        release = {"name": "hami", "version": 1, "config": self.values, "chart": {}}
        text = base64.b64encode(gzip.compress(json.dumps(release).encode())).decode()
        return {
            "metadata": {
                "name": "sh.helm.release.v1.hami.v1",
                "labels": {"owner": "helm", "status": "deployed", "name": "hami"},
            },
            "type": "helm.sh/release.v1",
            "stringData": {"release": text},
        }

    def bound(self, pod: Object, node: str, allocated: str) -> None:
        """A pod that HAMi's scheduler has bound and its plugin has served."""
        name = pod["metadata"]["name"]
        pod["metadata"]["annotations"] |= {
            "hami.io/vgpu-node": node,
            "hami.io/vgpu-time": "1787300000",
            "hami.io/vgpu-devices-allocated": allocated,
            "hami.io/vgpu-devices-to-allocate": ";;",
            "hami.io/bind-time": "1787300001",
            "hami.io/bind-phase": "success",
        }
        pod["metadata"]["labels"] = {"hami.io/vgpu-node": node}
        self.admin.create(pods_path(self.namespace), pod)
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        path = pods_path(self.namespace, name)
        self.admin.create(f"{path}/binding", {"metadata": {"name": name}, "target": target})
        self.admin.merge(f"{path}/status", {"status": {"phase": "Running"}})
