"""The scenario of ``hami demo``: two nodes, and what a cluster with shared devices has to do."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from hami.domain.allocations import PodAllocation
from hami.domain.errors import ConfigError
from hami.domain.kubernetes.objects import Metadata, Node, ResourceQuota
from hami.domain.kubernetes.quantity import limited_memory
from hami.kube.errors import ApiError
from hami.kube.resources import EVENTS, QUOTAS, Event
from hami.policy.pods.accounting import account_of
from hami.vendors.registry import Vendors
from hami.wire import keys
from hami_lab.cluster import EmbeddedCluster
from hami_lab.demo.books import the_books_agree
from hami_lab.demo.containers import each_has_its_own
from hami_lab.demo.enforced import Enforced
from hami_lab.demo.nodes import VENDOR, start_nodes
from hami_lab.demo.run import Skipped, Step, StepFailed
from hami_lab.kubelet.script import STOP_DURATION
from hami_lab.live import LivePod

_SIMULATED = "mock.hami.io/devices"
_TYPE = "nvidia.com/use-gputype"
_MEMORY = "limits.nvidia.com/gpumem"
_TEAM = "team-a"
_SHARERS = ("chat-1", "chat-2", "chat-3")
_GPUMEM = 4000
_QUOTA = 8000


def check_plugins(vendors: Vendors) -> None:
    """The scenario needs two plugins.

    Raises:
        ConfigError: one is not installed.
    """
    probe = Node(metadata=Metadata(name="probe", annotations={_SIMULATED: "t4x1"}))
    if VENDOR not in vendors or not vendors.simulated_annotations(probe, {}):
        raise ConfigError(
            "the demo shares simulated NVIDIA devices, and the plugins for that are not installed; "
            "install them from a checkout of hami: "
            "pip install -e . -e lab -e shim/simgpu -e plugins/nvidia -e plugins/mock"
        )


class Scenario:
    """The steps, in order, on a running cluster without nodes."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._cluster = cluster

    def steps(self) -> Sequence[Step]:
        return (
            Step(
                name="cluster", title="the agents of two nodes report their devices", run=self.nodes
            ),
            Step(name="sharing", title="three pods share one device", run=self.sharing),
            Step(
                name="containers",
                title="each container gets its own slice, and nothing of its neighbours'",
                run=self.containers,
            ),
            Step(
                name="enforced",
                title="a process in its slice is refused beyond it, and gets more after a resize",
                run=self.enforced,
            ),
            Step(
                name="percentage",
                title="the same percentage is a different size on each model",
                run=self.percentage,
            ),
            Step(
                name="denied",
                title="a request that no device could hold is denied at creation",
                run=self.denied,
            ),
            Step(
                name="refused",
                title="a pod that fits nowhere waits, and its event says why",
                run=self.refused,
            ),
            Step(name="quota", title="a quota on device memory holds", run=self.quota),
            Step(
                name="freed",
                title="a waiting pod is placed when another one goes",
                run=self.freed,
            ),
            Step(
                name="raised",
                title="a waiting pod is woken when its quota is raised",
                run=self.raised,
            ),
            Step(
                name="books",
                title="the service's books agree with a recount of all pods",
                run=lambda: the_books_agree(self._cluster),
            ),
        )

    async def nodes(self) -> list[str]:
        await start_nodes(self._cluster)
        vendor = self._cluster.vendors[VENDOR]
        lines = []
        for node in await self._cluster.nodes():
            found = vendor.node_devices(node)
            if not isinstance(found, Sequence) or not found:
                raise StepFailed(f"node {node.name} reports no devices: {found}")
            about = found[0]
            lines.append(f"{node.name}: {len(found)} x {about.model}, {about.memory_mib} MiB each")
        return lines

    async def sharing(self) -> list[str]:
        about = {_TYPE: "A100", keys.DEVICE_POLICY: "binpack"}
        await self._cluster.apply(
            [a_pod(n, about, gpu=1, gpumem="8Gi", gpucores=20) for n in _SHARERS]
        )
        pods = await self._cluster.bound(*_SHARERS)
        held = [self._allocation(pod) for pod in pods]
        devices = {grant.device_id for one in held for grant in one.grants}
        if len(devices) != 1 or any(g.memory_mib != 8192 for one in held for g in one.grants):
            raise StepFailed(f"they hold {', '.join(map(_shown, held))}; expected 8192 MiB of one")
        for pod in pods:
            if keys.ALLOCATION_SIGNATURE not in pod.annotations:
                raise StepFailed(f"the allocation of pod {pod.full_name} is not signed")
        return [f"{pod.name}: {_shown(one)}" for pod, one in zip(pods, held, strict=True)]

    async def containers(self) -> list[str]:
        pods = [await self._cluster.phase(name, "Running") for name in _SHARERS]
        return each_has_its_own(self._cluster, [(pod, self._allocation(pod)) for pod in pods])

    async def enforced(self) -> list[str] | Skipped:
        pod = await self._cluster.phase(_SHARERS[0], "Running")
        return await Enforced(cluster=self._cluster).run(pod, self._allocation(pod))

    async def percentage(self) -> list[str]:
        expected = {"quarter-of-a100": ("A100", 40960 // 4), "quarter-of-t4": ("T4", 15360 // 4)}
        await self._cluster.apply(
            [
                a_pod(name, {_TYPE: model}, gpu=1, gpumem_percentage=25)
                for name, (model, _) in expected.items()
            ]
        )
        lines = []
        for pod in await self._cluster.bound(*expected):
            held = self._allocation(pod)
            wanted = expected[pod.name][1]
            if [grant.memory_mib for grant in held.grants] != [wanted]:
                raise StepFailed(f"pod {pod.name} holds {_shown(held)}; expected {wanted} MiB")
            lines.append(f"{pod.name}: {_shown(held)}")
        return lines

    async def denied(self) -> list[str]:
        try:
            await self._cluster.apply(a_pod("typo", gpu=1, gpumem="500M"))
        except ApiError as error:
            if "500Mi" not in error.message:
                raise StepFailed(f"denied, but without the remedy: {error.message}") from error
            return [f"gpumem: 500M -> {error.message}"]
        raise StepFailed("a pod with gpumem: 500M was created")

    async def refused(self) -> list[str]:
        await self._cluster.apply(a_pod("giant", gpu=1, gpumem=90000))
        message = await self._cluster.refused("giant", "CardInsufficientMemory")
        await self._event("giant", message)
        await self._cluster.delete_pod("giant")
        await self._cluster.gone("giant")
        return [f"giant asks for 90000 MiB: {message}"]

    async def quota(self) -> list[str]:
        await self._cluster.apply(
            [
                {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _TEAM}},
                {
                    "apiVersion": "v1",
                    "kind": "ResourceQuota",
                    "metadata": {"name": "devices", "namespace": _TEAM},
                    "spec": {"hard": {_MEMORY: _QUOTA}},
                },
            ]
        )
        await self._published(0)
        for name in ("train-1", "train-2"):
            await self._cluster.apply(_trainer(name))
            await self._cluster.bound(name, namespace=_TEAM)
        await self._cluster.apply(_trainer("train-3"))
        message = await self._cluster.refused("train-3", "ResourceQuota", namespace=_TEAM)
        used = await self._published(2 * _GPUMEM)
        return [
            f"{_MEMORY}: {_QUOTA}; two pods of {_GPUMEM} MiB run",
            f"train-3 waits: {message}",
            f"the quota's status.used: {_MEMORY}: {used}",
        ]

    async def freed(self) -> list[str]:
        begin = time.monotonic()
        await self._cluster.delete_pod("train-1", namespace=_TEAM)
        await self._cluster.bound("train-3", namespace=_TEAM)
        took = time.monotonic() - begin
        await self._cluster.gone("train-1", namespace=_TEAM)
        await self._published(2 * _GPUMEM)
        return [f"train-1 was deleted; train-3 was bound {took * 1000:.0f} ms later"]

    async def raised(self) -> list[str]:
        """kube-scheduler does not look at quotas: without a wake-up the pod would wait on."""
        await self._cluster.apply(_trainer("train-4"))
        await self._cluster.refused("train-4", "ResourceQuota", namespace=_TEAM)
        patch = {"spec": {"hard": {_MEMORY: str(_QUOTA + _GPUMEM)}}}
        begin = time.monotonic()
        await self._cluster.client.patch(QUOTAS, "devices", patch, namespace=_TEAM)
        (pod,) = await self._cluster.bound("train-4", namespace=_TEAM)
        took = time.monotonic() - begin
        if keys.WAKE_UP not in pod.annotations:
            raise StepFailed("train-4 was bound without a wake-up of ours")
        used = await self._published(3 * _GPUMEM)
        return [
            f"{_MEMORY} raised to {_QUOTA + _GPUMEM}; train-4 was bound {took * 1000:.0f} ms later",
            f"the quota's status.used: {_MEMORY}: {used}",
        ]

    # What the steps look at.

    def _allocation(self, pod: LivePod) -> PodAllocation:
        account = account_of(pod, self._cluster.vendors)
        if account is None or account.problems:
            raise StepFailed(
                f"the allocation of pod {pod.full_name} cannot be read: "
                f"{'; '.join(account.problems) if account else 'there is none'}"
            )
        return account.allocation

    async def _event(self, pod: str, message: str) -> None:
        """Until there is a FailedScheduling event with this message; it comes a little later."""

        async def found() -> Event | None:
            events = await self._cluster.client.list(
                EVENTS, namespace="default", field_selector=f"involvedObject.name={pod}"
            )
            said = (e for e in events if e.reason == "FailedScheduling" and e.message == message)
            return next(said, None)

        await self._cluster.eventually(f"FailedScheduling event of pod {pod}", found)

    async def _published(self, mib: int) -> str:
        """The text in the quota's status, once it says so much."""

        async def shown() -> str | None:
            quota: ResourceQuota = await self._cluster.client.get(
                QUOTAS, "devices", namespace=_TEAM
            )
            text = ((quota.status.used if quota.status else None) or {}).get(_MEMORY, "")
            return text if limited_memory(text) == mib else None

        return await self._cluster.eventually(f"status.used of the quota at {mib} MiB", shown)


def a_pod(
    name: str,
    annotations: Mapping[str, str] | None = None,
    *,
    namespace: str = "default",
    **limits: int | str,
) -> dict[str, Any]:
    """A pod with one container; ``limits`` are NVIDIA's resources, with _ for - and no prefix."""
    resources = {
        f"nvidia.com/{resource.replace('_', '-')}": str(amount)
        for resource, amount in limits.items()
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "annotations": {STOP_DURATION: "0s", **(annotations or {})},
        },
        "spec": {
            "containers": [
                {
                    "name": "main",
                    "image": f"registry.example.com/{name}:1.0",
                    "resources": {"limits": resources},
                }
            ]
        },
    }


def _trainer(name: str) -> dict[str, Any]:
    return a_pod(name, namespace=_TEAM, gpu=1, gpumem=_GPUMEM)


def _shown(allocation: PodAllocation) -> str:
    """``8192 MiB, 20 % of GPU-a100-1-0 on a100-1``."""
    return ", ".join(
        f"{grant.memory_mib} MiB{f', {grant.cores} %' if grant.cores else ''} of {grant.device_id} "
        f"on {allocation.node}"
        for grant in allocation.grants
    )
