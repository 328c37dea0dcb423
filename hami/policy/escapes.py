"""What in a pod's spec would let it out of its slices.

A privileged container may use every device of its node. A volume at the slice's limits page lies
over the page; one above or beside it lets another container of the pod put a file of its own in
the page's place. Whoever hands out slices asks here: admission, and whoever decides or serves,
because a pod may have gone past admission.
"""

from __future__ import annotations

from collections.abc import Iterator

from hami.domain.objects import Container, Pod
from hami.domain.slices import SEEN_AT

_PAGES = tuple(SEEN_AT.strip("/").split("/"))
_PLACES = (_PAGES, ("var", *_PAGES))
"""Where containers find their limits pages; in nearly every image /var/run is a link to /run."""
_ABOVE = frozenset(place[:n] for place in _PLACES for n in range(len(place))) - {("var",)}
"""Folders that hold the pages' own. Not /var, where only the link is."""


def escape_of(pod: Pod) -> str | None:
    """Why this pod may not have a slice, naming the container; None when it may."""
    for container in _containers(pod):
        if (problem := container_escape(container)) is not None:
            return problem
    return None


def container_escape(container: Container) -> str | None:
    """What is wrong with one container of a pod that has slices."""
    if container.privileged:
        return f"container {container.name} is privileged"
    for path in _paths(container):
        if not may_cover_pages(path):
            continue
        if ".." in path.split("/"):
            return f"container {container.name} mounts a volume at {path}: write it without '..'"
        if covers_pages(path):
            return (
                f"container {container.name} mounts a volume at {path}, over the limits of its "
                f"slice at {SEEN_AT}; mount it elsewhere"
            )
    return None


def may_cover_pages(path: str) -> bool:
    """A first look, for the many paths that have nothing to do with it."""
    return "run" in path or ".." in path or not path.strip("/.")


def covers_pages(path: str) -> bool:
    """A path in a container, without ``..``, is at, above or below the limits pages."""
    # As kubelet and the runtimes read it: relative to the root, repeated slashes are one.
    parts = tuple(part for part in path.split("/") if part not in ("", "."))
    return parts in _ABOVE or any(parts[: len(place)] == place for place in _PLACES)


def _containers(pod: Pod) -> Iterator[Container]:
    yield from pod.spec.init_containers or ()
    yield from pod.spec.containers
    yield from pod.spec.ephemeral_containers or ()


def _paths(container: Container) -> Iterator[str]:
    yield from (mount.mount_path for mount in container.volume_mounts or ())
    yield from (device.device_path for device in container.volume_devices or ())
