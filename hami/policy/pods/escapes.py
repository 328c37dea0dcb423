"""What in a pod's spec would let it out of its slices.

A privileged container may use every device of its node
(https://kubernetes.io/docs/concepts/security/linux-kernel-security-constraints/). A volume at the
slice's limits page hides the page; a volume above or beside it lets another container of the pod
replace the page. Vendors name other such paths (``guarded_paths``). Admission checks this, and so
do the scheduler and the agent, because a pod may have gone past admission.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from hami.domain.kubernetes.objects import Container, Pod
from hami.domain.profile import SERVICE_ACCOUNT_AT
from hami.domain.slices import SEEN_AT
from hami.policy.ports import VendorRegistry

_Parts = tuple[str, ...]


def escape_of(pod: Pod, vendors: VendorRegistry) -> str | None:
    """Why this pod may not have a slice, with the container's name; None when it may."""
    for container in _containers(pod):
        if (problem := container_escape(container, vendors)) is not None:
            return problem
    return None


def container_escape(container: Container, vendors: VendorRegistry) -> str | None:
    """What is wrong with one container of a pod that has slices."""
    if container.privileged:
        return f"container {container.name} is privileged"
    for path in _paths(container):
        if not may_cover(path):
            continue
        mounts = f"container {container.name} mounts a volume at {path}"
        if ".." in path.split("/"):
            return f"{mounts}: write it without '..'"
        if covers(path, SEEN_AT):
            return f"{mounts}, over the limits of its slice at {SEEN_AT}; mount it elsewhere"
        for key in vendors:
            for place in vendors[key].profile.guarded_paths:
                if covers(path, place):
                    return f"{mounts}, over {place}, which is {key}'s; mount it elsewhere"
    return None


may_cover: Final = re.compile(
    rf"\A(?!{re.escape(SERVICE_ACCOUNT_AT)}\Z)(?s:.*?)(?:run|etc|usr|\.\.)|\A[/.]*\Z"
).search
"""A quick look at a path, since most have nothing to do with a guarded one: guarded paths are below
/run, /var/run, /etc or /usr, or are the root, and none is where nearly every pod has its service
account. Called for every mount of every pod, so it is a compiled pattern and no Python function."""


def covers(path: str, place: str) -> bool:
    """Whether a path in a container, without ``..``, is at, above or below ``place``."""
    parts = _parts(path)
    return any(_touches(parts, spelled) for spelled in _spelled(_parts(place)))


def _parts(path: str) -> _Parts:
    """The parts of a path, as kubelet and runtimes read it: from the root; ``//`` is ``/``."""
    return tuple(part for part in path.split("/") if part not in ("", "."))


def _spelled(place: _Parts) -> tuple[_Parts, ...]:
    """Both names of a path below /run: in nearly every image /var/run is a link to /run."""
    bare = place[1:] if place[:2] == ("var", "run") else place
    return (bare, ("var", *bare)) if bare[:1] == ("run",) else (place,)


def _touches(parts: _Parts, place: _Parts) -> bool:
    if parts == ("var",):
        return False  # Only the link is there.
    shorter = min(len(parts), len(place))
    return parts[:shorter] == place[:shorter]


def _containers(pod: Pod) -> Sequence[Container]:
    spec = pod.spec
    return [*(spec.init_containers or ()), *spec.containers, *(spec.ephemeral_containers or ())]


def _paths(container: Container) -> Sequence[str]:
    mounts, devices = container.volume_mounts, container.volume_devices
    if not (mounts or devices):
        return ()  # The informer's pods have hardly any mounts left.
    paths = [mount.mount_path for mount in mounts or ()]
    return paths + [device.device_path for device in devices or ()]
