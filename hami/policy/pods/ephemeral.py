"""What happens to ephemeral containers (``kubectl debug``) of pods that have slices.

An ephemeral container gets no grant, because it may have no resources
(https://kubernetes.io/docs/concepts/workloads/pods/ephemeral-containers/). Whatever devices it saw,
it would see without a limit. So admission refuses what would show it a device, and sets the
variables that hide devices, because its image or environment may ask for some.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping

import msgspec

from hami.domain.admission import Denied
from hami.domain.kubernetes.objects import Container, EnvVar, Pod
from hami.policy.pods.escapes import container_escape
from hami.policy.pods.pod_request import who_asks
from hami.policy.ports import VendorRegistry

_WITHOUT_DEVICES = frozenset({"shm", "mqueue", "hugepages"})
"""Folders of /dev that hold memory or files; pods mount them for those."""


def admit_ephemeral(pod: Pod, before: Pod, vendors: VendorRegistry) -> Pod | Denied:
    """Check the ephemeral containers that are new since ``before``; the earlier ones are fixed.

    Admitting the result again changes nothing.
    """
    if not who_asks(pod, vendors):
        return pod
    hidden = _hidden(vendors)
    known = {container.name for container in before.spec.ephemeral_containers or ()}
    containers: list[Container] = []
    for container in pod.spec.ephemeral_containers or ():
        if container.name in known:
            containers.append(container)
            continue
        if (problem := _problem(container, pod, vendors, hidden)) is not None:
            return Denied(problem)
        containers.append(_without_devices(container, hidden))
    spec = msgspec.structs.replace(pod.spec, ephemeral_containers=containers)
    return msgspec.structs.replace(pod, spec=spec)


def _hidden(vendors: VendorRegistry) -> Mapping[str, str]:
    """The variables of all vendors that make a runtime show no device, with their values."""
    return {name: text for key in vendors for name, text in vendors[key].profile.hidden_env.items()}


def _problem(
    container: Container, pod: Pod, vendors: VendorRegistry, hidden: Mapping[str, str]
) -> str | None:
    who = f"ephemeral container {container.name}"
    if (escape := container_escape(container, vendors)) is not None:
        return f"ephemeral {escape}: its pod has slices of devices"
    if container.volume_devices:
        path = container.volume_devices[0].device_path
        return (
            f"{who} has a device at {path}: its pod has slices of devices; leave volumeDevices out"
        )
    mounted = {mount.name for mount in container.volume_mounts or ()}
    for volume in pod.spec.volumes or ():
        if volume.name in mounted and volume.host_path and shows_devices(volume.host_path.path):
            return (
                f"{who} mounts {volume.host_path.path} of the node (volume {volume.name}): its pod "
                "has slices of devices; leave that volume out"
            )
    for variable in container.env or ():
        if hidden.get(variable.name, variable.value) != variable.value:
            return (
                f"{who} sets {variable.name}, which would show it devices without a limit: its pod "
                "has slices of them; leave the variable out"
            )
    return None


def shows_devices(path: str) -> bool:
    """Whether a path of the node is a device file, or a folder with some in it."""
    match posixpath.normpath(f"/{path}").strip("/").split("/"):
        case [""] | ["dev"]:
            return True
        case ["dev", folder, *_]:
            return folder not in _WITHOUT_DEVICES
        case _:
            return False


def _without_devices(container: Container, hidden: Mapping[str, str]) -> Container:
    """The container with the hiding variables; they win over its image and an ``envFrom``."""
    present = {variable.name for variable in container.env or ()}
    added = [EnvVar(name=n, value=text) for n, text in hidden.items() if n not in present]
    if not added:
        return container
    return msgspec.structs.replace(container, env=[*(container.env or ()), *added])
