"""What is in use on every NVIDIA device, counted anew from annotation texts and pod specs alone.

Independent of the code that it checks: it shares nothing with ``hami.policy`` or ``hami.wire``. It
reads HAMi's formats (``id,type,memory,cores:`` per device, ``;`` after the devices of each
container, init containers first; the node's register as JSON) and applies the rule that a pod uses,
on a device, the larger of what its init containers need one by one, with the sidecars started
before them, and of what its apps and sidecars need together.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

ALLOCATED = "hami.io/vgpu-devices-allocated"
REGISTER = "hami.io/node-nvidia-register"
NODE = "hami.io/vgpu-node"
COUNT = "nvidia.com/gpu"

Object = Mapping[str, Any]
Key = tuple[str, str]
"""Node name and device id."""


@dataclass(frozen=True, slots=True)
class Amount:
    """Slots, MiB and percent: of a device, or of what is in use of it."""

    slots: int = 0
    memory: int = 0
    cores: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(
            self.slots + other.slots, self.memory + other.memory, self.cores + other.cores
        )

    def peak(self, other: Amount) -> Amount:
        return Amount(
            max(self.slots, other.slots),
            max(self.memory, other.memory),
            max(self.cores, other.cores),
        )

    def exceeds(self, limit: Amount) -> bool:
        return self.slots > limit.slots or self.memory > limit.memory or self.cores > limit.cores


def hardware(nodes: Iterable[Object]) -> dict[Key, Amount]:
    found = {}
    for node in nodes:
        about = node["metadata"]
        for device in json.loads(about.get("annotations", {}).get(REGISTER, "[]")):
            key = (about["name"], device["id"])
            found[key] = Amount(device["count"], device["devmem"], device["devcore"])
    return found


def recount(pods: Iterable[Object], nodes: Iterable[Object]) -> dict[Key, Amount]:
    """The usage of every device of every node; pods that ended or have no node use nothing.

    Raises:
        AssertionError: a bound pod that asks for devices and names none, or names
            another node, a container too many, or a device that does not exist.
    """
    used = dict.fromkeys(hardware(nodes), Amount())
    for pod in pods:
        node = pod["spec"].get("nodeName", "")
        if not node or pod["status"].get("phase") in {"Succeeded", "Failed"} or not asks(pod):
            continue
        name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        annotations = pod["metadata"].get("annotations", {})
        assert annotations.get(NODE) == node, f"{name} is on {node}, {annotations.get(NODE)=}"
        for device, amount in usage(pod, annotations[ALLOCATED]).items():
            assert (node, device) in used, f"{name} has {device}, which {node} does not have"
            used[node, device] += amount
    return used


def over_allocated(pods: Iterable[Object], nodes: Iterable[Object]) -> dict[Key, Amount]:
    """The devices of which more is in use than they have."""
    nodes = list(nodes)
    limits = hardware(nodes)
    return {
        key: amount for key, amount in recount(pods, nodes).items() if amount.exceeds(limits[key])
    }


def usage(pod: Object, text: str) -> dict[str, Amount]:
    """What one pod uses, by device id."""
    plain = [c.get("restartPolicy") != "Always" for c in pod["spec"].get("initContainers", ())]
    slots = [devices for _, devices in handed_out(pod, text)]
    inits, apps = slots[: len(plain)], slots[len(plain) :]
    running: dict[str, Amount] = {}
    peak: dict[str, Amount] = {}
    for is_plain, slot in zip(plain, inits, strict=True):
        for device, amount in total(granted(slot)).items():
            before = running.get(device, Amount())
            if is_plain:
                peak[device] = peak.get(device, Amount()).peak(before + amount)
            else:
                running[device] = before + amount
    for device, amount in total(grant for slot in apps for grant in granted(slot)).items():
        running[device] = running.get(device, Amount()) + amount
    statuses = pod["status"].get("initContainerStatuses", ())
    ended = [s.get("state", {}).get("terminated", {}).get("exitCode") == 0 for s in statuses]
    if ended and all(done for done, once in zip(ended, plain, strict=True) if once):
        peak = {}
    return {
        device: running.get(device, Amount()).peak(peak.get(device, Amount()))
        for device in running.keys() | peak.keys()
    }


def handed_out(pod: Object, text: str, resource: str = COUNT) -> list[tuple[Object, str]]:
    """Every container, init containers first, with the text of its devices.

    Writers differ in whether they write empty places for containers without devices. So places
    count for nothing: each container that asks takes the next devices.

    Raises:
        AssertionError: not as many containers have devices as ask for some.
    """
    containers = [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]
    asking = [wants(container, resource) for container in containers]
    texts = [devices for devices in text.split(";") if devices]
    assert len(texts) == sum(asking), f"{text!r}: {len(texts)} have devices, {sum(asking)} ask"
    left = iter(texts)
    return [
        (container, next(left) if asks_it else "")
        for container, asks_it in zip(containers, asking, strict=True)
    ]


def granted(slot: str) -> Iterator[tuple[str, Amount]]:
    for piece in filter(None, slot.split(":")):
        device, _vendor, memory, cores = piece.split(",")
        yield device, Amount(1, int(memory), int(cores))


def total(grants: Iterable[tuple[str, Amount]]) -> dict[str, Amount]:
    sums: dict[str, Amount] = {}
    for device, amount in grants:
        sums[device] = sums.get(device, Amount()) + amount
    return sums


def asks(pod: Object) -> bool:
    return any(map(wants, [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]))


def wants(container: Object, resource: str = COUNT) -> bool:
    limits = container.get("resources", {}).get("limits", {})
    return any(name.startswith(resource) and str(limits[name]) != "0" for name in limits)
