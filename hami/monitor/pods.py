"""The pods of this node as the API server has them, for whom that can be asked.

Nothing waits for it: what it adds are names, and somewhere to write events.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from hami.domain.units import PodUid
from hami.kube.client import KubeClient
from hami.kube.informer import Informer
from hami.kube.node_pod import NODE_PODS, NodePod
from hami.slices.cgroups import CgroupPlace

_NONE: Mapping[str, str] = MappingProxyType({})


class KnownPods:
    """Empty until ``run`` has heard of any. The loop writes; other threads may read."""

    def __init__(self) -> None:
        self._pods: dict[PodUid, NodePod] = {}
        self._containers: dict[PodUid, Mapping[str, str]] = {}

    def get(self, uid: PodUid) -> NodePod | None:
        return self._pods.get(uid)

    def name_of(self, place: CgroupPlace) -> str:
        """The container's name; empty while it is not known."""
        return self._containers.get(place.pod_uid, _NONE).get(place.container_id, "")

    def full_name_of(self, uid: PodUid) -> tuple[str, str] | None:
        """Its namespace and name; None while they are not known."""
        pod = self._pods.get(uid)
        return None if pod is None else (pod.namespace, pod.name)

    async def run(self, client: KubeClient, node: str, on_problem: Callable[[str], None]) -> None:
        """Follow the node's pods until cancelled."""
        await Informer(
            client,
            NODE_PODS,
            self,
            field_selector=f"spec.nodeName={node}",
            on_problem=on_problem,
        ).run()

    # What the informer says.

    def changed(self, new: NodePod, old: NodePod | None) -> None:  # noqa: ARG002 -- the handler's signature
        self._pods[new.uid] = new
        self._containers[new.uid] = {
            status.container_id.rpartition("/")[2]: status.name
            for status in new.running
            if status.container_id
        }

    def gone(self, last: NodePod) -> None:
        self._pods.pop(last.uid, None)
        self._containers.pop(last.uid, None)
