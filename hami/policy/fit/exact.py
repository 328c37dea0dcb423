"""The exact fit: one request on one node, and a whole pod on one node.

``place`` is the default of ``hami_fit``: it walks the devices in policy order. For each, in HAMi's
order of checks, it asks the vendor for the charge and checks that the charge fits. ``fit_pod`` fits
every container in turn, beside the containers that run at the same time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Protocol, overload

import msgspec

from hami.domain import reasons
from hami.domain.allocations import ContainerAllocation, ContainerKind, PodAllocation
from hami.domain.devices import DeviceState, Grant
from hami.domain.kubernetes.objects import Node
from hami.domain.reasons import Reason, Rejected
from hami.domain.requests import (
    ContainerRequest,
    DeviceRequest,
    FitContext,
    Placement,
    PodRequest,
)
from hami.domain.units import WHOLE_DEVICE, VendorKey
from hami.policy.fit.rank import in_order
from hami.policy.fit.selection import Selection, cordoned_ids
from hami.policy.ports import VendorCalls, VendorRegistry
from hami.policy.profile.defaults import asked_memory
from hami.policy.usage import ChargeMeter, DeviceKey, key_of


class QuotaRefused(Protocol):
    """One limit that would be exceeded; its text names all the numbers."""

    @property
    def rule(self) -> str: ...


class QuotaGate(Protocol):
    """What quota lets one pod have; None instead of a gate means that no quota concerns the pod."""

    @property
    def per_model(self) -> bool:
        """Whether a quota limits single models of device."""
        ...

    def of_models(self, containers: Sequence[ContainerAllocation], node: str) -> Mapping[str, int]:
        """The charge of these containers by quota key, for the models that are limited there."""
        ...

    def refusals(self, asked: Mapping[str, int]) -> Sequence[QuotaRefused]:
        """Why quota refuses these amounts by resource name; empty when it allows them."""
        ...


@dataclass(frozen=True, slots=True)
class NodeDevices:
    """A node and its devices by vendor, in the order of their indexes."""

    node: Node
    states: Mapping[VendorKey, Sequence[DeviceState]]


def place(
    vendor: VendorCalls, request: DeviceRequest, states: Sequence[DeviceState], ctx: FitContext
) -> Placement | Rejected:
    """Place ``request.count`` grants on these devices, or say why each device was refused.

    The checks of a device, of which the first that fails counts, are health, unknown usage, cordon,
    model and mode, (NUMA), uuid, slots, exclusive use, quota, memory, cores, exclusive cores,
    exhausted cores, the vendor's own rule.
    """
    walk = _Walk(vendor, request, ctx)
    eligible = [
        state
        for state in in_order(states, request, ctx.policy, numa_bind=walk.selection.numa_bind)
        if walk.eligible(state)
    ]
    groups: list[list[DeviceState]] = [eligible]
    if walk.selection.numa_bind:
        # in_order sorts by NUMA node first when the pod is bound to one.
        groups = [list(group) for _, group in groupby(eligible, lambda s: s.device.numa)]
    for number, group in enumerate(groups, start=1):
        outcome = walk.take(group)
        if isinstance(outcome, Placement):
            return outcome
        if number < len(groups) and (left_behind := walk.refused.pop(reasons.TOO_FEW, 0)):
            walk.refused[reasons.NUMA_NOT_FIT] += left_behind
    return Rejected.of(walk.refused, len(states), walk.details)


@dataclass(slots=True)
class _Walk:
    """One walk over a node's devices, which collects why devices were refused."""

    vendor: VendorCalls
    request: DeviceRequest
    ctx: FitContext
    selection: Selection = field(init=False)
    cordoned: frozenset[str] = field(init=False)
    refused: Counter[Reason] = field(default_factory=Counter)
    details: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        profile = self.vendor.profile
        self.selection = Selection.of(profile, self.ctx.pod)
        self.cordoned = cordoned_ids(profile, self.ctx.node.annotations)

    def eligible(self, state: DeviceState) -> bool:
        """The checks that come before NUMA groups are formed."""
        device = state.device
        if not device.healthy:
            reason = reasons.NOT_HEALTHY
        elif not state.known:
            reason = reasons.UNKNOWN_USAGE
        elif device.id in self.cordoned:
            reason = reasons.CORDONED
        elif not (
            self.selection.admits_model(device.model) and self.selection.admits_mode(device.mode)
        ):
            reason = reasons.TYPE_MISMATCH
        else:
            return True
        self.refused[reason] += 1
        return False

    def take(self, group: Sequence[DeviceState]) -> Placement | None:
        """Enough grants out of one group, or None with the reasons counted."""
        if self.vendor.chooses:
            chosen = self._let_vendor_choose(group)
            if chosen is not None:
                return chosen if isinstance(chosen, Placement) else None
        return self.take_first(group) or self._take_cheapest(group)

    def take_first(self, group: Sequence[DeviceState]) -> Placement | None:
        """The first grants that fit, in the group's order."""
        taken: list[Grant] = []
        for state in group:
            for verdict in self.slices(state, taken):
                if isinstance(verdict, Reason):
                    self.refused[verdict] += 1
                else:
                    taken.append(verdict[1])
                if len(taken) == self.request.count:
                    return Placement(tuple(taken))
        self.refused[reasons.TOO_FEW] += len(taken)
        return None

    def _take_cheapest(self, group: Sequence[DeviceState]) -> Placement | None:
        """Try the smallest devices where quota does not allow those that the policy's order gives.

        HAMi leaves such a pod waiting although it fits.
        """
        request = self.request
        if reasons.QUOTA not in self.refused or request.memory_mib is not None:
            return None
        again = replace(self, refused=Counter())  # what counts is why the policy's order failed
        by_size = sorted(group, key=lambda state: asked_memory(request, state.device))
        return again.take_first(by_size)

    def _let_vendor_choose(self, group: Sequence[DeviceState]) -> Placement | Rejected | None:
        candidates = _Candidates(self, group)
        answer = self.vendor.choose(self.request, candidates, self.ctx)
        if answer is None:
            return None
        outcome = answer if isinstance(answer, Rejected) else self._checked(answer, candidates)
        if isinstance(outcome, Rejected):
            self.refused.update(candidates.refused)
            self.refused.update(dict(outcome.counts))
            self.details += outcome.details
        return outcome

    def _checked(
        self, grants: Sequence[Grant], candidates: Sequence[tuple[DeviceState, Grant]]
    ) -> Placement | Rejected:
        offered = [grant for _, grant in candidates]
        for grant in grants:
            if grant in offered:
                offered.remove(grant)
        taken = len(candidates) - len(offered)
        if not len(grants) == taken == self.request.count:
            problem = f"hami_choose took {len(grants)} grants that were not all offered"
            return Rejected.of({reasons.VENDOR_ERROR: len(candidates)}, details=[problem])
        if not self.ctx.allowed(grants):
            return Rejected.of({reasons.QUOTA: len(candidates)})
        return Placement(tuple(grants))

    def slices(
        self, state: DeviceState, taken: Sequence[Grant]
    ) -> Iterable[tuple[DeviceState, Grant] | Reason]:
        """The slices that this device can give, then (if it gave too few) why no more.

        ``taken`` grows while the caller consumes. A device gives one slice, or as many as fit where
        its mode allows several.
        """
        several = self.vendor.rules(state.device.mode).several_slices_per_device
        for left in reversed(range(self.request.count if several else 1)):
            verdict = self._verdict(state, taken)
            if isinstance(verdict, Reason):
                yield verdict
                return
            yield state, verdict
            if left:
                state = state.taking(verdict)

    def _verdict(self, state: DeviceState, taken: Sequence[Grant]) -> Grant | Reason:
        """The grant on this device in its present state, or the first check that fails."""
        request, device, used = self.request, state.device, state.usage
        if not self.selection.admits_uuid(device.id):
            return reasons.UUID_MISMATCH
        if used.slots >= device.slots:
            return reasons.NO_SLOT
        if (self.ctx.policy.device.mutex or request.exclusive) and used.slots > 0:
            return reasons.EXCLUSIVE_CONFLICT
        grant = self.vendor.charge(request, state, self.ctx)
        if isinstance(grant, Reason):
            return grant
        if not self.ctx.allowed((*taken, grant)):
            return reasons.QUOTA
        if not self.vendor.rules(device.mode).placements:
            if device.memory_mib - used.memory_mib < grant.memory_mib:
                return reasons.NO_MEMORY
            if device.cores - used.cores < grant.cores:
                return reasons.NO_CORES
            if device.cores == grant.cores == WHOLE_DEVICE and used.slots > 0:
                return reasons.EXCLUSIVE_CONFLICT
            if device.cores and used.cores == device.cores and not grant.cores:
                return reasons.CORES_EXHAUSTED
        return self.vendor.accept(request, state, taken, self.ctx) or grant


class _Candidates(Sequence[tuple[DeviceState, Grant]]):
    """Every slice that a vendor may choose, and why other devices give none.

    Computed on first use: most vendors choose for few pods, and decide that without looking.
    """

    def __init__(self, walk: _Walk, group: Sequence[DeviceState]) -> None:
        self._walk = walk
        self._group = group
        self._refused: Counter[Reason] = Counter()
        self._found: list[tuple[DeviceState, Grant]] | None = None

    @overload
    def __getitem__(self, index: int) -> tuple[DeviceState, Grant]: ...

    @overload
    def __getitem__(self, index: slice) -> list[tuple[DeviceState, Grant]]: ...

    def __getitem__(
        self, index: int | slice
    ) -> tuple[DeviceState, Grant] | list[tuple[DeviceState, Grant]]:
        return self._look()[index]

    def __len__(self) -> int:
        return len(self._look())

    def __iter__(self) -> Iterator[tuple[DeviceState, Grant]]:
        return iter(self._look())

    @property
    def refused(self) -> Mapping[Reason, int]:
        self._look()
        return self._refused

    def _look(self) -> list[tuple[DeviceState, Grant]]:
        if self._found is None:
            self._found = []
            for state in self._group:
                for verdict in self._walk.slices(state, ()):
                    if isinstance(verdict, Reason):
                        self._refused[verdict] += 1
                    else:
                        self._found.append(verdict)
        return self._found


def fit_pod(
    request: PodRequest,
    devices: NodeDevices,
    vendors: VendorRegistry,
    gate: QuotaGate | None = None,
) -> PodAllocation | Rejected:
    """Fit every container of the pod on this node, or say why the first that fails does not fit."""
    attempt = _Attempt(request, devices, vendors, gate)
    for ask in request.containers:
        outcome = attempt.fit(ask)
        if isinstance(outcome, Rejected):
            return outcome
        attempt.keep(outcome)
    return PodAllocation(node=devices.node.name, containers=tuple(attempt.done))


@dataclass(slots=True)
class _Attempt:
    """A pod half placed: the containers done so far, and those of them that still run."""

    request: PodRequest
    devices: NodeDevices
    vendors: VendorRegistry
    gate: QuotaGate | None
    done: list[ContainerAllocation] = field(default_factory=list)
    running: dict[DeviceKey, tuple[Grant, ...]] = field(default_factory=dict)
    meter: ChargeMeter = field(init=False)

    def __post_init__(self) -> None:
        self.meter = ChargeMeter({key: self.vendors[key].profile for key in self.vendors})

    def keep(self, container: ContainerAllocation) -> None:
        self.done.append(container)
        self.meter.add(container.kind, container.grants)
        if container.kind is not ContainerKind.INIT:
            for grant in container.grants:
                key = key_of(grant)
                self.running[key] = (*self.running.get(key, ()), grant)

    def fit(self, ask: ContainerRequest) -> ContainerAllocation | Rejected:
        """One container, vendor by vendor."""
        granted: tuple[Grant, ...] = ()
        for wanted in ask.requests:
            vendor = self.vendors[wanted.vendor]
            states = self._states(wanted.vendor)
            if _too_few(vendor, wanted, states, self.request):
                return Rejected.of(reasons.NODE_TOO_FEW_DEVICES)
            so_far = ContainerAllocation(name=ask.container.name, kind=ask.kind, grants=granted)
            quota = _Quota(self.gate, self.meter, self.done, so_far, self.devices.node.name)
            ctx = FitContext(
                pod=self.request.pod,
                node=self.devices.node,
                container=ask.container,
                kind=ask.kind,
                granted=(*self.done, so_far),
                policy=self.request.policy,
                allowed=quota.allows,
            )
            outcome = vendor.fit(wanted, states, ctx)
            if isinstance(outcome, Placement) and vendor.fits:
                outcome = _validated(vendor, wanted, states, outcome, ctx)
            if isinstance(outcome, Rejected):
                details = (*outcome.details, *quota.refused)
                rules = frozenset(quota.refused.values())
                return Rejected(outcome.counts, outcome.devices, details, rules)
            granted += outcome.grants
        return ContainerAllocation(
            name=ask.container.name, kind=ask.kind, grants=granted, cores_limit=ask.cores_limit
        )

    def _states(self, vendor: VendorKey) -> list[DeviceState]:
        """This vendor's devices, with the pod's own containers that run at the same time."""
        return [
            state.taking(*now) if (now := self.running.get((vendor, state.device.id))) else state
            for state in self.devices.states.get(vendor, ())
        ]


def _too_few(
    vendor: VendorCalls, wanted: DeviceRequest, states: Sequence[DeviceState], request: PodRequest
) -> bool:
    """Whether there are fewer devices than slices and none of them may give several."""
    if len(states) >= wanted.count:
        return False
    selection = Selection.of(vendor.profile, request.pod)
    return not any(
        vendor.rules(state.device.mode).several_slices_per_device
        and selection.admits_mode(state.device.mode)
        for state in states
    )


@dataclass(slots=True)
class _Quota:
    """The gate for one container; it remembers refusals, so that they can be explained."""

    gate: QuotaGate | None
    meter: ChargeMeter
    done: Sequence[ContainerAllocation]
    so_far: ContainerAllocation
    node: str
    refused: dict[str, str] = field(default_factory=dict)
    """The rule of each refusal, by the refusal's text."""

    def allows(self, grants: Sequence[Grant]) -> bool:
        if self.gate is None:
            return True
        together = (*self.so_far.grants, *grants)
        asked = self.meter.after(self.so_far.kind, together)
        if self.gate.per_model:
            containers = (*self.done, msgspec.structs.replace(self.so_far, grants=together))
            asked |= self.gate.of_models(containers, self.node)
        found = self.gate.refusals(asked)
        for refusal in found:
            self.refused[str(refusal)] = refusal.rule
        return not found


def _validated(
    vendor: VendorCalls,
    wanted: DeviceRequest,
    states: Sequence[DeviceState],
    placement: Placement,
    ctx: FitContext,
) -> Placement | Rejected:
    """Check the placement of a vendor that replaced the loop: every device exists and has room."""
    cordoned = cordoned_ids(vendor.profile, ctx.node.annotations)
    if problem := _placement_problem(vendor, wanted, states, placement, cordoned):
        failed = {reasons.VENDOR_ERROR: len(states)}
        return Rejected.of(failed, len(states), [f"hami_fit {problem}"])
    if not ctx.allowed(placement.grants):
        return Rejected.of({reasons.QUOTA: len(states)}, len(states))
    return placement


def _placement_problem(
    vendor: VendorCalls,
    wanted: DeviceRequest,
    states: Sequence[DeviceState],
    placement: Placement,
    cordoned: frozenset[str],
) -> str:
    """What is wrong with a placement; empty when nothing is."""
    if len(placement.grants) != wanted.count:
        return f"granted {len(placement.grants)} slices of {wanted.count}"
    before = {state.device.id: state for state in states}
    after = dict(before)
    for grant in placement.grants:
        state = after.get(grant.device_id)
        if state is None:
            return f"granted device {grant.device_id}, which this node does not have"
        device, rules = state.device, vendor.rules(state.device.mode)
        if not (device.healthy and state.known) or device.id in cordoned:
            return f"granted device {device.id}, which is ill, cordoned or of unknown usage"
        if state is not before[device.id] and not rules.several_slices_per_device:
            return f"granted device {device.id} twice"
        if wanted.exclusive and state.usage.slots:
            return f"granted device {device.id}, which is in use, to an exclusive request"
        after[device.id] = state = state.taking(grant)
        used = state.usage
        if used.slots > device.slots or (
            not rules.placements
            and (used.memory_mib > device.memory_mib or used.cores > device.cores)
        ):
            return f"exceeded device {device.id}"
    return ""
