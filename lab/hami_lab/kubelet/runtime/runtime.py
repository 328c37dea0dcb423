"""The runtime of one node: containers that exist as records only."""

from __future__ import annotations

import itertools
import secrets
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from hami.domain.kubernetes.objects import Container, Pod
from hami.domain.units import PodUid
from hami.node.kubelet.api import v1beta1_pb2 as api
from hami_lab.kubelet.runtime.cdi import Unresolvable
from hami_lab.kubelet.runtime.create import StartedContainer, contents, given
from hami_lab.kubelet.runtime.traces import Traces

NAME = "containerd"
VERSION = "2.4.2"
REMEMBERED = 10_000
"""Starts that are kept."""
FIRST_PID = 5_000_000
"""Above every number that Linux gives to a process, so that nobody's is meant by mistake."""

Where = tuple[PodUid, str]
"""Pod and container."""


@dataclass(frozen=True, slots=True)
class NotCreated:
    """Why there is no container; the runtime's words."""

    text: str


class Runtime:
    """Creates and ends containers; ``started`` are all starts, the latest last.

    ``cdi_folders`` are read at each creation, later ones precede. ``traces`` is left out where
    nobody looks for cgroups.
    """

    def __init__(
        self,
        cdi_folders: Sequence[Path],
        *,
        traces: Traces | None = None,
        clock: Callable[[], float],
    ) -> None:
        self.started: deque[StartedContainer] = deque(maxlen=REMEMBERED)
        self._cdi_folders = cdi_folders
        self._traces = traces
        self._clock = clock
        self._running: dict[Where, StartedContainer] = {}
        self._attempts: dict[Where, int] = {}
        self._pids = itertools.count(FIRST_PID)

    @property
    def running(self) -> Mapping[Where, StartedContainer]:
        return MappingProxyType(self._running)

    def create(
        self, pod: Pod, container: Container, answers: Sequence[api.ContainerAllocateResponse]
    ) -> StartedContainer | NotCreated:
        """Create and start a container with what kubelet was answered for it."""
        found = given(container, answers, self._cdi_folders)
        if isinstance(found, Unresolvable):
            return NotCreated(f"failed to create containerd container: {found}")
        where = (pod.uid, container.name)
        self._end(where)
        files, missing = contents(found.mounts)
        started = StartedContainer(
            pod_uid=pod.uid,
            namespace=pod.namespace,
            pod=pod.name,
            container=container.name,
            attempt=self._attempts.get(where, 0),
            id=secrets.token_hex(32),
            pid=next(self._pids),
            at=self._clock(),
            env=MappingProxyType(found.env),
            mounts=found.mounts,
            device_nodes=found.device_nodes,
            cdi_devices=found.cdi_devices,
            annotations=MappingProxyType(found.annotations),
            hooks=found.hooks,
            files=MappingProxyType(files),
            missing=missing,
        )
        self._attempts[where] = started.attempt + 1
        self._running[where] = started
        self.started.append(started)
        if self._traces is not None:
            self._traces.leave(started)
        return started

    def keep(self, pod_uid: PodUid, names: Collection[str]) -> None:
        """End every container of the pod but these."""
        for where in [w for w in self._running if w[0] == pod_uid and w[1] not in names]:
            self._end(where)

    def forget(self, pod_uid: PodUid) -> None:
        """The pod is gone for good."""
        self.keep(pod_uid, ())
        for where in [w for w in self._attempts if w[0] == pod_uid]:
            del self._attempts[where]

    def running_of(self, pod_uid: PodUid) -> Collection[str]:
        return frozenset(name for uid, name in self._running if uid == pod_uid)

    def starts_of(self, pod: str, container: str = "") -> list[StartedContainer]:
        """Every start of a pod's containers, by the pod's name."""
        return [one for one in self.started if one.pod == pod and container in ("", one.container)]

    def _end(self, where: Where) -> None:
        ended = self._running.pop(where, None)
        if ended is not None and self._traces is not None:
            self._traces.clear(ended)
