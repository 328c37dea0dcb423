"""MIG instances that were made for pods, and what their pods' annotation says of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from threading import Lock

from hami.domain.errors import Malformed
from hami.domain.slices import Slice
from hami.domain.units import PodUid
from hami_nvidia.mig.instances import InstanceIdentity
from hami_nvidia.schedule.mig_annotation import MIG_ANNOTATION, completed, encode_mig_allocations


class MadeInstances:
    """Remembers what was made for each pod, because its annotation is seen late.

    Containers of one pod start within milliseconds: the second would otherwise complete the
    annotation as it was before the first, and undo what that one wrote. Any thread.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._made: dict[PodUid, dict[str, tuple[InstanceIdentity, ...]]] = {}

    def remember(self, slice: Slice, identities: Sequence[InstanceIdentity]) -> None:
        """Remember what was made for a slice, now or by a former process."""
        with self._lock:
            self._made.setdefault(slice.pod_uid, {})[slice.id] = tuple(identities)

    def keep(self, pods: Collection[PodUid]) -> None:
        """Forget all pods but these."""
        with self._lock:
            self._made = {pod: made for pod, made in self._made.items() if pod in pods}

    def annotations(
        self, slice: Slice, identities: Sequence[InstanceIdentity]
    ) -> Mapping[str, str]:
        """The pod's annotation, completed; none where the pod has none that can be read."""
        self.remember(slice, identities)
        with self._lock:
            known = [made for each in self._made.get(slice.pod_uid, {}).values() for made in each]
        entries = completed(
            slice.pod_annotations.get(MIG_ANNOTATION, ""),
            {
                (made.gpu, made.profile, made.placement): (
                    made.mig_uuid,
                    made.gpu_instance,
                    made.compute_instance,
                )
                for made in known
            },
        )
        if isinstance(entries, Malformed) or not entries:
            return {}
        return {MIG_ANNOTATION: encode_mig_allocations(entries)}

    def forget(self, slice: Slice) -> None:
        """Forget a slice that was released."""
        with self._lock:
            of_pod = self._made.get(slice.pod_uid, {})
            of_pod.pop(slice.id, None)
            if not of_pod:
                self._made.pop(slice.pod_uid, None)
