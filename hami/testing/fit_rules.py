"""Checks of what a vendor grants: never more than a device has, nor less than was asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from hami.domain.devices import Device, DeviceState, Grant
from hami.domain.reasons import VENDOR_ERROR, Reason, Rejected
from hami.domain.requests import DeviceRequest, FitContext, Placement
from hami.domain.scheduling import NodePolicy, SchedulingPolicy
from hami.domain.units import WHOLE_DEVICE, DeviceId
from hami.policy.profile.defaults import asked_memory
from hami.testing.asks import Limits, context, limits, pods, policies, understood
from hami.testing.subject import LAW, Subject


def charge_problem(
    request: DeviceRequest, device: Device, grant: Grant, *, placements: bool
) -> str:
    """Say why a grant is wrong for a request that the unused device could serve, or nothing.

    With ``placements`` a slice is a fixed piece, which may hold less than a share of the device.
    """
    memory = device.memory_mib if request.exclusive else asked_memory(request, device)
    if memory <= device.memory_mib < grant.memory_mib:
        return f"grants {grant.memory_mib} MiB of a device that has {device.memory_mib}"
    least = (request.memory_mib or 0) if placements else memory
    if grant.memory_mib < least:
        return f"grants {grant.memory_mib} MiB when {least} were asked"
    cores = device.cores if request.exclusive else min(request.cores, WHOLE_DEVICE)
    if cores <= device.cores < grant.cores:
        return f"grants {grant.cores} percent of a device that has {device.cores}"
    if grant.cores < cores and not placements:
        return f"grants {grant.cores} percent when {cores} were asked"
    return ""


def state_problem(state: DeviceState, *, placements: bool) -> str:
    """Say how a device gave more than it has; empty if it did not."""
    device, used = state.device, state.usage
    if used.slots > device.slots:
        return f"device {device.id} has {used.slots} slices in {device.slots} slots"
    if placements:
        places = [msgspec.json.encode(grant.extra.encode()) for grant in state.grants]
        if b"{}" in places:
            return f"device {device.id} gives a placement, but the grant's extra does not say which"
        twice = [place.decode() for place, count in Counter(places).items() if count > 1]
        return f"device {device.id} gave one placement twice: {twice[0]}" if twice else ""
    if used.memory_mib > device.memory_mib:
        return f"device {device.id} gave {used.memory_mib} of {device.memory_mib} MiB"
    if used.cores > device.cores:
        return f"device {device.id} gave {used.cores} of {device.cores} percent"
    return ""


@dataclass(slots=True)
class Bench:
    """The subject's devices while requests are placed on them, one after the other."""

    subject: Subject
    states: dict[DeviceId, DeviceState] = field(default_factory=dict)

    def __post_init__(self) -> None:
        ordered = sorted(self.subject.devices, key=lambda d: (d.index, d.id))
        self.states = {device.id: DeviceState(device) for device in ordered}

    def fit(self, request: DeviceRequest, ctx: FitContext) -> Placement | Rejected:
        """Ask the vendor; its answer must be one that the core takes."""
        outcome = self.subject.vendor.fit(request, tuple(self.states.values()), ctx)
        if isinstance(outcome, Rejected):
            assert outcome.counts, f"{request} was rejected without a reason"
            assert VENDOR_ERROR not in dict(outcome.counts), (
                f"the core refused the vendor's answer to {request}: "
                f"{'; '.join(outcome.details) or outcome}"
            )
        return outcome

    def take(self, request: DeviceRequest, placement: Placement) -> None:
        """Charge the grants, and check that they may be had."""
        grants = placement.grants
        assert len(grants) == request.count, f"{len(grants)} grants for {request}"
        for device_id, times in Counter(grant.device_id for grant in grants).items():
            state = self.states.get(device_id)
            assert state is not None, f"granted {device_id!r}, which is not on the node"
            several = self.subject.vendor.rules(state.device.mode).several_slices_per_device
            assert times == 1 or several, f"granted {device_id!r} {times} times for one request"
            assert not (request.exclusive and state.usage.slots), (
                f"granted {device_id!r}, which is in use, to an exclusive request"
            )
        for grant in grants:
            state = self.states[grant.device_id].taking(grant)
            self.states[grant.device_id] = state
            rules = self.subject.vendor.rules(state.device.mode)
            problem = state_problem(state, placements=rules.placements)
            assert not problem, problem

    def place(self, asks: Limits, policy: SchedulingPolicy | None = None) -> Placement | None:
        """Place a pod with these limits if the vendor understands them and has room."""
        request = understood(self.subject, asks)
        if request is None:
            return None
        outcome = self.fit(request, context(self.subject, asks, policy=policy))
        if isinstance(outcome, Rejected):
            return None
        self.take(request, outcome)
        return outcome


def offered(
    subject: Subject, request: DeviceRequest, states: Sequence[DeviceState], ctx: FitContext
) -> list[tuple[DeviceState, Grant]]:
    """Devices that could each serve one slice, as ``hami_choose`` gets them."""
    found: list[tuple[DeviceState, Grant]] = []
    for state in states:
        grant = subject.vendor.charge(request, state, ctx)
        if isinstance(grant, Reason):
            continue
        placements = subject.vendor.rules(state.device.mode).placements
        if not state_problem(state.taking(grant), placements=placements):
            found.append((state, grant))
    return found


class FitRules:
    """Whatever is asked in whatever order, a device gives what it has."""

    def test_a_charge_never_exceeds_the_device(self, subject: Subject) -> None:
        """``hami_charge`` takes what was asked and no more than there is, each time the same."""
        devices = subject.devices

        @LAW
        @given(limits(subject.profile, devices), st.sampled_from(devices))
        def law(asks: Limits, device: Device) -> None:
            request = understood(subject, asks)
            if request is None:
                return
            ctx, state = context(subject, asks), DeviceState(device)
            grant = subject.vendor.charge(request, state, ctx)
            again = subject.vendor.charge(request, state, ctx)
            assert grant == again, f"hami_charge gave {grant}, then for the same state {again}"
            if isinstance(grant, Grant):
                rules = subject.vendor.rules(device.mode)
                problem = charge_problem(request, device, grant, placements=rules.placements)
                assert not problem, f"hami_charge {problem}"

        law()

    def test_an_unused_device_takes_a_slice(self, subject: Subject) -> None:
        """One slice with nothing said of its size fits an empty node."""
        count = subject.profile.resources.count
        asks = {count: "1"}
        request = understood(subject, asks)
        assert request is not None, f"{asks} is no request"
        outcome = Bench(subject).fit(request, context(subject, asks))
        assert isinstance(outcome, Placement), f"an empty node refuses {asks}: {outcome}"

    def test_a_fit_never_over_allocates(self, subject: Subject) -> None:
        """No sequence of pods takes more of a device than it has, or one placement twice."""

        @LAW
        @given(pods(subject.profile, subject.devices, at_most=16), policies())
        def law(asked: list[Limits], policy: SchedulingPolicy) -> None:
            bench = Bench(subject)
            for asks in asked:
                bench.place(asks, policy)

        law()

    def test_an_ill_device_takes_nothing(self, subject: Subject) -> None:
        """A device that is not healthy, or whose usage is unknown, gives no slice."""
        asks = {subject.profile.resources.count: "1"}
        request = understood(subject, asks)
        assert request is not None, f"{asks} is no request"

        def ill(state: DeviceState) -> DeviceState:
            return replace(state, device=replace(state.device, healthy=False))

        def unknown(state: DeviceState) -> DeviceState:
            return replace(state, known=False)

        for spoil, word in ((ill, "healthy"), (unknown, "known in its usage")):
            bench = Bench(subject)
            bench.states = {key: spoil(state) for key, state in bench.states.items()}
            outcome = bench.fit(request, context(subject, asks))
            assert isinstance(outcome, Rejected), (
                f"hami_fit granted {outcome.grants} of devices that are not {word}"
            )

    def test_quota_is_honoured(self, subject: Subject) -> None:
        """``ctx.allowed`` holds for what a fit grants and what ``hami_choose`` takes."""

        @LAW
        @given(limits(subject.profile, subject.devices), st.integers(0, 1 << 18), policies())
        def law(asks: Limits, budget: int, policy: SchedulingPolicy) -> None:
            def allowed(grants: Sequence[Grant]) -> bool:
                return sum(grant.memory_mib for grant in grants) <= budget

            request = understood(subject, asks)
            if request is None:
                return
            ctx = context(subject, asks, policy=policy, allowed=allowed)
            outcome = Bench(subject).fit(request, ctx)
            assert isinstance(outcome, Rejected) or allowed(outcome.grants), (
                f"{outcome} is granted although ctx.allowed refuses it"
            )

        law()

    def test_choose_takes_what_it_was_offered(self, subject: Subject) -> None:
        """``hami_choose`` takes as many grants as asked, out of the candidates, within quota."""
        if not subject.vendor.chooses:
            pytest.skip(f"{subject.profile.key} does not implement hami_choose")
        ids = [device.id for device in subject.devices]
        forbidden = st.sets(st.sampled_from(ids), max_size=len(ids) - 1)

        @LAW
        @given(limits(subject.profile, subject.devices), forbidden, policies())
        def law(asks: Limits, refused: set[DeviceId], policy: SchedulingPolicy) -> None:
            request = understood(subject, asks)
            if request is None:
                return

            def allowed(grants: Sequence[Grant]) -> bool:
                return not any(grant.device_id in refused for grant in grants)

            ctx = context(subject, asks, policy=policy, allowed=allowed)
            candidates = offered(subject, request, tuple(Bench(subject).states.values()), ctx)
            if len(candidates) < request.count:
                return
            taken = subject.vendor.choose(request, candidates, ctx)
            if taken is None or isinstance(taken, Rejected):
                return
            grants = [grant for _, grant in candidates]
            assert len(taken) == request.count, (
                f"hami_choose took {len(taken)} grants when {request.count} were asked"
            )
            assert not Counter(taken) - Counter(grants), (
                f"hami_choose took grants that it was not offered: {taken}"
            )
            assert allowed(taken), f"hami_choose took {taken}, which ctx.allowed refuses"

        law()

    def test_a_score_is_a_function_of_the_placement(self, subject: Subject) -> None:
        """``hami_score`` asked twice about the same placement gives the same number."""
        if not subject.vendor.scores:
            pytest.skip(f"{subject.profile.key} does not implement hami_score")

        @LAW
        @given(pods(subject.profile, subject.devices, at_most=4), st.sampled_from(NodePolicy))
        def law(asked: list[Limits], policy: NodePolicy) -> None:
            bench = Bench(subject)
            for asks in asked:
                before = tuple(bench.states.values())
                request, placement = understood(subject, asks), bench.place(asks)
                if request is None or placement is None:
                    continue
                first, again = (
                    subject.vendor.score(request, placement, before, policy) for _ in range(2)
                )
                assert first == again, (
                    f"hami_score gave {first}, then for the same placement {again}"
                )

        law()
