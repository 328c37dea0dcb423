"""What is in use on every NVIDIA device, counted anew from annotation texts and pod specs alone.

Independent of what it checks: it shares no code with ``hami.policy`` or ``hami.wire``. It reads
HAMi's formats (``id,type,memory,cores:`` per device, ``;`` after each container, init containers
first; the node's register as JSON) and applies the rule that a pod uses, on a device, the larger
of what its init containers need one by one, with the sidecars started before them, and of what
its apps and sidecars need together.
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
    """Slots, MiB and percent; of a device or of what is in use of it."""

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
    """By device, every device of every node; pods that ended or are on no node use nothing.

    Raises:
        AssertionError: a bound pod that asks for devices and says nothing of which, or names
            another node, a container too many, a device that there is not.
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
    """The devices of which more is in use than there is."""
    nodes = list(nodes)
    limits = hardware(nodes)
    return {
        key: amount for key, amount in recount(pods, nodes).items() if amount.exceeds(limits[key])
    }


def usage(pod: Object, text: str) -> dict[str, Amount]:
    """What one pod uses, by device id."""
    plain = [c.get("restartPolicy") != "Always" for c in pod["spec"].get("initContainers", ())]
    slots = text.split(";")
    inits, apps = slots[: len(plain)], slots[len(plain) :]
    containers = len(pod["spec"]["containers"])
    assert not any(apps[containers:]), f"{text!r} has more than {containers} containers"
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
    containers = [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]
    return any(
        name.startswith(COUNT)
        for container in containers
        for name in container.get("resources", {}).get("limits", {})
    )
