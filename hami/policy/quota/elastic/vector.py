"""What one pod holds, or wants to hold, of every resource that a quota may name.

Of the resources that vendors manage: what the ledger charges it. Of everything else: what its
spec requests at the worst moment. And the GB of device memory in all that, as nos counts them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from msgspec.structs import replace

from hami.domain.allocations import ContainerAllocation, ContainerKind
from hami.domain.devices import Grant
from hami.domain.kubernetes.objects import Container, Pod
from hami.domain.kubernetes.quantity import BadQuantity
from hami.domain.profile import VendorProfile
from hami.domain.units import VendorKey
from hami.policy.quota.elastic.model import GPU_MEMORY, MIB_PER_GB, Amounts
from hami.policy.quota.elastic.units import TYPED, Units
from hami.policy.usage import quota_charge

WHOLE_GPU = "nvidia.com/gpu"
_PREFIX = "nvidia.com/"
_MIG = re.compile(r"nvidia\.com/mig-\d+g\.(\d+)gb")
_MPS = re.compile(r"nvidia\.com/gpu-(\d+)gb")
_GB = re.compile(r"\d+gb")


def pod_vector(
    pod: Pod, charge: Amounts | None, units: Units, gpu_memory_gb: int
) -> dict[str, int]:
    """What a pod is counted with, by resource name.

    ``charge``: what it is charged of the vendors' resources, None or empty for a pod whose
    devices are not granted by us. Only then its spec says how many devices it has, and each
    ``nvidia.com/gpu`` is ``gpu_memory_gb``.
    """
    if charge:
        return PodVector(pod, units).charged(charge)
    vector = _effective(pod, units.managed - units.counts, units)
    vector[GPU_MEMORY] = _sliced_gb(vector) + vector.get(WHOLE_GPU, 0) * gpu_memory_gb
    return _something(vector)


class PodVector:
    """A pod that is asked about with one charge after the other, as each card would make it."""

    __slots__ = ("_rest", "_sliced_gb", "units")

    def __init__(self, pod: Pod, units: Units) -> None:
        self.units = units
        self._rest = _effective(pod, units.managed, units)
        self._sliced_gb = _sliced_gb(self._rest)

    def charged(self, charge: Amounts) -> dict[str, int]:
        """With what vendors' resources it is charged."""
        mib, memory = 0, self.units.memory
        for name, amount in charge.items():
            if name in memory:
                mib += amount
        vector = {**self._rest, **charge}
        vector[GPU_MEMORY] = self._sliced_gb + -(-mib // MIB_PER_GB)
        return _something(vector)


def _something(vector: dict[str, int]) -> dict[str, int]:
    if 0 not in vector.values():
        return vector
    return {resource: amount for resource, amount in vector.items() if amount}


def slice_gb(resource: str) -> int:
    """GB of one MIG or MPS slice by its resource name; 0 for any other name.

    Like nos it looks at a part of the name, so that ``mig-1g.10gb.me`` counts, and wants exactly
    one number of GB in it.
    """
    if _PREFIX not in resource:
        return 0
    found = _MIG.search(resource) or _MPS.fullmatch(resource)
    return int(found[1]) if found and len(_GB.findall(resource)) == 1 else 0


def _sliced_gb(vector: Amounts) -> int:
    gigabytes = 0
    for resource, amount in vector.items():
        if _PREFIX in resource:
            gigabytes += amount * slice_gb(resource)
    return gigabytes


def typed_charge(
    containers: Iterable[ContainerAllocation],
    profiles: Mapping[VendorKey, VendorProfile],
    typed: Iterable[str],
    model_of: Callable[[Grant], str],
) -> dict[str, int]:
    """What a pod is charged of devices of one model, for each ``<resource>@<model>`` in ``typed``.

    A model matches without regard to case and as a part of the device's, as ``use-gputype`` does.
    """
    held = list(containers)
    found: dict[str, int] = {}
    for key in typed:
        resource, _, model = key.partition(TYPED)
        of_model = [
            replace(
                each,
                grants=tuple(g for g in each.grants if model.upper() in model_of(g).upper()),
            )
            for each in held
        ]
        if amount := quota_charge(of_model, profiles).get(resource, 0):
            found[key] = amount
    return found


def _effective(pod: Pod, left_out: frozenset[str], units: Units) -> dict[str, int]:
    """``max( max over init containers of (init + sidecars before it), apps + sidecars )``.

    Plain init containers count until all of them have ended well; the overhead always does.
    """
    spec = pod.spec
    if spec.init_containers:
        peak = _peak(pod, left_out, units)
    elif len(spec.containers) == 1:
        peak = _requests(spec.containers[0], left_out, units)
    else:
        peak = {}
        for container in spec.containers:
            peak = _sum(peak, _requests(container, left_out, units))
    if not spec.overhead:
        return peak
    overhead: dict[str, int] = {}
    _read(overhead, spec.overhead, left_out, units)
    return _sum(peak, overhead)


def _peak(pod: Pod, left_out: frozenset[str], units: Units) -> dict[str, int]:
    """Of a pod with init containers, without its overhead."""
    running: dict[str, int] = {}
    peak: dict[str, int] = {}
    ended = pod.init_finished
    for container, kind in pod.each_container():
        if kind is ContainerKind.INIT:
            if not ended:
                _raise(peak, _sum(running, _requests(container, left_out, units)))
        else:
            running = _sum(running, _requests(container, left_out, units))
    _raise(peak, running)
    return peak


def _requests(container: Container, left_out: frozenset[str], units: Units) -> dict[str, int]:
    """A request that is missing is its limit, as the API server fills it in."""
    found: dict[str, int] = {}
    if (resources := container.resources) is not None:
        for texts in (resources.requests, resources.limits):
            if texts:
                _read(found, texts, left_out, units)
    return found


def _read(
    found: dict[str, int], texts: Mapping[str, str], left_out: frozenset[str], units: Units
) -> None:
    """Add those that are not found yet.

    The API server checks the grammar; what it could not have let in counts nothing.
    """
    for resource, text in texts.items():
        if resource not in found and resource not in left_out:
            amount = units.request(resource, text)
            if not isinstance(amount, BadQuantity):
                found[resource] = amount


def _sum(one: Amounts, other: Amounts) -> dict[str, int]:
    total = dict(one)
    for resource, amount in other.items():
        total[resource] = total.get(resource, 0) + amount
    return total


def _raise(peak: dict[str, int], amounts: Amounts) -> None:
    for resource, amount in amounts.items():
        peak[resource] = max(peak.get(resource, 0), amount)
