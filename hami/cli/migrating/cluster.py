"""What a running cluster says of HAMi: lists, and nothing that changes anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from hami.domain.errors import ConfigError
from hami.kube.client import KubeClient
from hami.kube.errors import FORBIDDEN, NOT_FOUND, ApiError
from hami.kube.identity.settings import KubeSettings
from hami.kube.resources import NAMESPACES, PODS, SECRETS, HasMetadata, Resource
from hami.migration.seen import (
    PLUGIN,
    SCHEDULER,
    AdmissionHooks,
    HamiWorkload,
    ReportedNode,
    SeenCluster,
    read_release,
)

T = TypeVar("T", bound=HasMetadata)

DEPLOYMENTS = Resource(
    group_version="apps/v1",
    plural="deployments",
    kind="Deployment",
    type=HamiWorkload,
    namespaced=True,
)
DAEMON_SETS = Resource(
    group_version="apps/v1",
    plural="daemonsets",
    kind="DaemonSet",
    type=HamiWorkload,
    namespaced=True,
)
HOOKS = Resource(
    group_version="admissionregistration.k8s.io/v1",
    plural="mutatingwebhookconfigurations",
    kind="MutatingWebhookConfiguration",
    type=AdmissionHooks,
    namespaced=False,
)
NODES = Resource(
    group_version="v1", plural="nodes", kind="Node", type=ReportedNode, namespaced=False
)


class _Reading:
    """Asks, and keeps what was refused."""

    def __init__(self, client: KubeClient) -> None:
        self.denied: list[str] = []
        self._client = client

    async def all(
        self, resource: Resource[T], *, label_selector: str = "", namespace: str = ""
    ) -> list[T]:
        try:
            return await self._client.list(
                resource, label_selector=label_selector, namespace=namespace
            )
        except ApiError as error:
            self._deny(error, f"list {resource.plural}", namespace)
            return []

    async def one(self, resource: Resource[T], name: str) -> T | None:
        try:
            return await self._client.get(resource, name)
        except ApiError as error:
            if error.status != NOT_FOUND:
                self._deny(error, f"get {resource.plural}", "")
            return None

    def _deny(self, error: ApiError, right: str, namespace: str) -> None:
        if error.status != FORBIDDEN:
            raise error
        self.denied.append(f"{right}{f' in {namespace}' if namespace else ''}")


async def look(settings: KubeSettings, values: Mapping[str, Any] | None) -> SeenCluster:
    """Read the cluster; ``values`` are HAMi's, where somebody named a file of them.

    Raises:
        ConfigError: there is no HAMi, or no usable kubeconfig.
        ApiError: the API server does not answer.
    """
    async with await KubeClient.connect(settings) as client:
        reading = _Reading(client)
        component = "app.kubernetes.io/component="
        schedulers = await reading.all(DEPLOYMENTS, label_selector=f"{component}{SCHEDULER}")
        plugins = await reading.all(DAEMON_SETS, label_selector=f"{component}{PLUGIN}")
        if not schedulers and not plugins and not reading.denied:
            raise ConfigError(
                f"{client.server} has no HAMi: no Deployment has the label {component}{SCHEDULER}, "
                f"and no DaemonSet {component}{PLUGIN}; name another cluster with --context"
            )
        hook = None
        if schedulers:
            name = schedulers[0].metadata.name.removesuffix("-scheduler")
            hook = await reading.one(HOOKS, f"{name}-webhook")
        found = [*schedulers, *plugins]
        if values is None and found:
            values = await _values(reading, found[0])
        ignored = await reading.all(NAMESPACES, label_selector="hami.io/webhook=ignore")
        return SeenCluster(
            schedulers=schedulers,
            plugins=plugins,
            nodes=await reading.all(NODES),
            pods=await reading.all(PODS),
            ignored_namespaces=[one.metadata.name for one in ignored],
            hook=hook,
            values=values,
            denied=reading.denied,
        )


async def _values(reading: _Reading, one: HamiWorkload) -> Mapping[str, Any] | None:
    """The values of Helm's newest release; None where Helm keeps none that may be read."""
    selector = f"owner=helm,status=deployed,name={one.label('instance')}"
    secrets = await reading.all(SECRETS, label_selector=selector, namespace=one.metadata.namespace)
    releases = [read_release((secret.data or {}).get("release", "")) for secret in secrets]
    if not releases:
        return None
    return max(releases, key=lambda release: release.version).config or {}
