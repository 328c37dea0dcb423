"""A live resize: the same devices, other amounts, judged beside everything else on the node.

While a resize is on its way either allocation may be in force. So what is judged is the larger of
both in each amount: a container that grows needs room beside one that shrinks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from hami.domain import reasons, resizes
from hami.domain.allocations import ContainerAllocation, PodAllocation
from hami.domain.devices import UNUSED, DeviceState, Grant, Usage
from hami.domain.kubernetes.objects import Container, Pod
from hami.domain.profile import VendorProfile
from hami.domain.reasons import Reason
from hami.domain.requests import DeviceRequest, FitContext
from hami.domain.resizes import ContainerResize, ResizeRefusal
from hami.domain.units import WHOLE_DEVICE, CorePercent
from hami.policy.fit.exact import NodeDevices
from hami.policy.ports import VendorCalls, VendorRegistry
from hami.policy.usage import DeviceKey, at_least, device_usage, key_of

Refusals = tuple[ResizeRefusal, ...]

NO_LIMIT = CorePercent(0)


def resized(
    pod: Pod,
    has: PodAllocation,
    wanted: Sequence[ContainerResize],
    others: NodeDevices,
    vendors: VendorRegistry,
    *,
    init_ended: bool,
) -> PodAllocation | Refusals:
    """What the pod will have, or everything that keeps it as it is.

    ``has``: what it has now. ``others``: the devices of its node as they were without it.
    ``init_ended``: what plain init containers had is free.
    """
    resize = _Resize(pod, others, vendors)
    held = {container.name: container for container in has.containers if container.grants}
    for one in wanted:
        found = _held_by(one, held)
        if isinstance(found, ResizeRefusal):
            resize.refused.append(found)
        else:
            held[found.name] = resize.container(found, one)
    if resize.refused:
        return tuple(resize.refused)
    after = replace(has, containers=tuple(held.get(c.name, c) for c in has.containers))
    refused = tuple(resize.beside_others(has, after, init_ended=init_ended))
    return refused or after


def _held_by(
    one: ContainerResize, held: Mapping[str, ContainerAllocation]
) -> ContainerAllocation | ResizeRefusal:
    """The container that is meant."""
    names = ", ".join(held)
    if one.container:
        found = held.get(one.container)
        text = f"container {one.container} has no device; those with devices: {names}"
    else:
        found = next(iter(held.values())) if len(held) == 1 else None
        text = f"several containers have devices: {names}; name one"
    if found is None:
        return ResizeRefusal(reason=resizes.NO_SUCH_SLICE, text=text, container=one.container)
    owners = sorted({grant.vendor for grant in found.grants})
    if len(owners) > 1:
        text = f"container {found.name} has devices of several vendors: {', '.join(owners)}"
        return ResizeRefusal(reason=resizes.NO_SUCH_SLICE, text=text, container=found.name)
    return found


@dataclass(slots=True)
class _Resize:
    """One pod's resize, with the refusals so far."""

    pod: Pod
    others: NodeDevices
    vendors: VendorRegistry
    refused: list[ResizeRefusal] = field(default_factory=list)

    def container(self, held: ContainerAllocation, wanted: ContainerResize) -> ContainerAllocation:
        """The container with its new grants; those that are refused stay as they were."""
        vendor = self.vendors[held.grants[0].vendor]
        spec, kind = next((c, k) for c, k in self.pod.each_container() if c.name == held.name)
        request = self._request(held, spec, vendor, wanted)
        if request is None:
            return held
        ctx = FitContext(pod=self.pod, node=self.others.node, container=spec, kind=kind)
        before = len(self.refused)
        grants = tuple(
            self._grant(vendor, grant, _asking(request, wanted, grant), ctx, held.name)
            for grant in held.grants
        )
        new = replace(held, grants=grants)
        return self._limited(new, wanted) if len(self.refused) == before else held

    def _limited(self, new: ContainerAllocation, wanted: ContainerResize) -> ContainerAllocation:
        """With its limit of compute; where that is what is guaranteed there is none."""
        limit = new.cores_limit if wanted.cores_limit is None else wanted.cores_limit
        guaranteed = max(grant.cores for grant in new.grants)
        if limit and (not guaranteed or limit < guaranteed):
            self._refuse(
                resizes.CORES_LIMIT_NOT_FIT,
                new.name,
                f"a share of {guaranteed} % of compute with a limit of {limit} %: name a limit "
                "that is not lower, or 0 for none",
            )
        return replace(new, cores_limit=limit if limit > guaranteed else NO_LIMIT)

    def _request(
        self,
        held: ContainerAllocation,
        spec: Container,
        vendor: VendorCalls,
        wanted: ContainerResize,
    ) -> DeviceRequest | None:
        """What the container asked at its creation."""
        names = vendor.profile.resources
        for what, amount, name in (
            ("memory", wanted.memory_mib, names.memory),
            ("compute", wanted.cores, names.cores),
            ("compute", wanted.cores_limit, names.cores),
        ):
            if amount is not None and not name:
                problem = f"{vendor.profile.key} counts no {what}"
                self._refuse(resizes.NO_SUCH_AMOUNT, held.name, problem)
                return None
        asked = vendor.parse_request(spec, self.pod)
        if not isinstance(asked, DeviceRequest):
            problem = "its request cannot be read" if asked is None else asked.text
            self._refuse(resizes.NO_SUCH_SLICE, held.name, problem)
            return None
        if asked.exclusive or vendor.profile.whole_device:
            self._refuse(resizes.WHOLE_DEVICE_GRANTED, held.name, "it has whole devices")
            return None
        return asked

    def _grant(
        self,
        vendor: VendorCalls,
        grant: Grant,
        request: DeviceRequest,
        ctx: FitContext,
        container: str,
    ) -> Grant:
        state = self._state_of(key_of(grant))
        about = f"device {grant.device_id}"
        if state is None:
            text = f"{about} is not on node {self.others.node.name} now"
            self._refuse(reasons.NODE_UNREGISTERED, container, text, grant)
            return grant
        if vendor.rules(state.device.mode).placements:
            text = f"{about} is in mode {state.device.mode}, whose instances have a fixed size"
            self._refuse(resizes.PLACED_INSTANCE, container, text, grant)
            return grant
        charged = vendor.charge(request, state, ctx)
        verdict = charged if isinstance(charged, Reason) else vendor.accept(request, state, (), ctx)
        if isinstance(verdict, Reason):
            self._refuse(verdict, container, f"{about}: {verdict}", grant)
            return grant
        assert isinstance(charged, Grant)
        return replace(grant, memory_mib=charged.memory_mib, cores=charged.cores)

    def _refuse(
        self, reason: Reason, container: str, problem: str, grant: Grant | None = None
    ) -> None:
        text = f"container {container}: {problem}"
        device = grant.device_id if grant else None
        refusal = ResizeRefusal(reason=reason, text=text, container=container, device=device)
        self.refused.append(refusal)

    def beside_others(
        self, has: PodAllocation, after: PodAllocation, *, init_ended: bool
    ) -> Iterator[ResizeRefusal]:
        """What keeps the pod from being both what it was and what it will be."""
        both = at_least(has, after)
        if init_ended:
            has, after, both = has.after_init(), after.after_init(), both.after_init()
        before, most = device_usage(has.containers), device_usage(both.containers)
        held = _cores(has)
        for key, usage in most.items():
            state = self._state_of(key)
            if state is None:
                continue  # Nothing of it changes: else it was refused before.
            names = self.vendors[key[0]].profile
            yield from _grown(state, before.get(key, UNUSED), usage, names)
        for key, cores in _cores(after).items():
            state = self._state_of(key)
            if state is None or cores == held[key]:
                continue
            if refusal := _alone(state, cores, self.vendors[key[0]].profile):
                yield refusal

    def _state_of(self, key: DeviceKey) -> DeviceState | None:
        states = self.others.states.get(key[0], ())
        return next((state for state in states if state.device.id == key[1]), None)


def _asking(asked: DeviceRequest, wanted: ContainerResize, grant: Grant) -> DeviceRequest:
    """With the new amounts; what is not named is what this slice has."""
    return replace(
        asked,
        memory_mib=grant.memory_mib if wanted.memory_mib is None else wanted.memory_mib,
        memory_percent=None,
        cores=grant.cores if wanted.cores is None else wanted.cores,
    )


def _cores(allocation: PodAllocation) -> dict[DeviceKey, tuple[int, ...]]:
    """The compute of each grant, by device."""
    found: dict[DeviceKey, tuple[int, ...]] = {}
    for grant in allocation.grants:
        found[key_of(grant)] = (*found.get(key_of(grant), ()), grant.cores)
    return found


def _grown(
    state: DeviceState, before: Usage, most: Usage, profile: VendorProfile
) -> Iterator[ResizeRefusal]:
    """What the device lacks for the amounts that grow."""
    device, used = state.device, state.usage
    if most.memory_mib <= before.memory_mib and most.cores <= before.cores:
        return
    unfit = None
    if not device.healthy:
        unfit = reasons.NOT_HEALTHY
    elif not state.known:
        unfit = reasons.UNKNOWN_USAGE
    if unfit is not None:
        text = f"device {device.id}: {unfit}: nothing on it may grow"
        yield ResizeRefusal(reason=unfit, text=text, device=device.id)
        return
    for reason, name, unit, has, asked, taken, whole in (
        (reasons.NO_MEMORY, profile.resources.memory, "MiB",
         before.memory_mib, most.memory_mib, used.memory_mib, device.memory_mib),
        (reasons.NO_CORES, profile.resources.cores, "percent",
         before.cores, most.cores, used.cores, device.cores),
    ):  # fmt: skip
        free = max(0, whole - taken)
        if has < asked and asked > free:
            yield ResizeRefusal(
                reason=reason,
                text=f"device {device.id}: {name}: asked {asked} {unit} > free {free} {unit} "
                f"(it has {whole}, other pods {taken})",
                device=device.id,
                resource=name,
                asked=asked,
                free=free,
            )


def _alone(
    state: DeviceState, cores: Sequence[int], profile: VendorProfile
) -> ResizeRefusal | None:
    """All of a device's compute is for a pod that is alone on it, whatever the others have."""
    device, others = state.device, state.usage
    if not (WHOLE_DEVICE in cores and device.cores == WHOLE_DEVICE and others.slots):
        return None
    name, reason = profile.resources.cores, reasons.EXCLUSIVE_CONFLICT
    return ResizeRefusal(
        reason=reason,
        text=f"device {device.id}: {name}: {reason}: {others.slots} slices of other pods are on it",
        device=device.id,
        resource=name,
    )
