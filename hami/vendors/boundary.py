"""One vendor's calls: its plugin's hook, or the default, behind one boundary for failures.

Whatever a plugin raises or returns out of contract becomes that vendor's refusal and a
:class:`VendorFailure` for whoever counts and logs; it never reaches another vendor. A scheduler
hook always answers; a node hook raises :class:`VendorFailed`, because the agent must retry.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from time import perf_counter
from types import UnionType
from typing import Any, TypeGuard

import pluggy

from hami.domain.admission import Admission, Denied
from hami.domain.allocations import ContainerKind, Corrupt, PodAllocation
from hami.domain.devices import Device, DeviceState, Grant
from hami.domain.errors import HamiError, Malformed, shortened
from hami.domain.objects import Container, Node, Pod
from hami.domain.options import NodeOption
from hami.domain.profile import ALL_COLUMNS, HEALTH_AND_CORDON, ModeRules, VendorProfile
from hami.domain.reasons import VENDOR_ERROR, Reason, Rejected
from hami.domain.requests import DeviceRequest, FitContext, Invalid, Placement
from hami.domain.scheduling import NodePolicy
from hami.domain.slices import ContainerEdits, HealthChange, Measurement, Slice
from hami.domain.units import VendorKey
from hami.hookspecs import NodeHooks, PluginConfig
from hami.policy.profile import defaults
from hami.vendors.answers import device_problem, grant_problem, request_problem

_NODE_HOOKS = tuple(name for name in vars(NodeHooks) if name.startswith("hami_"))
_DECIDING = frozenset({"hami_charge", "hami_accept", "hami_choose", "hami_fit"})


@dataclass(frozen=True, slots=True)
class VendorFailure:
    """A plugin broke its contract: which, in which hook, and how."""

    vendor: str
    hook: str
    distribution: str
    problem: str
    error: BaseException | None = None

    def __str__(self) -> str:
        return f"{self.distribution}: {self.hook} of vendor {self.vendor} failed: {self.problem}"


class VendorFailed(HamiError):
    """A node hook failed; the agent keeps what it had and tries again."""


class _NoAnswerError(Exception):
    """The hook failed; the failure has been reported."""

    def __init__(self, failure: VendorFailure) -> None:
        super().__init__(str(failure))
        self.failure = failure


def ignore_failure(_: VendorFailure) -> None:
    """For callers that see the refusals and need no count."""


def ignore_fit(_vendor: VendorKey, _seconds: float) -> None:
    """For callers that do not measure."""


class Vendor:
    """One vendor: its profile and every hook as a method.

    The scheduler's side is ``hami.policy.ports.VendorCalls``; the node's side raises
    :class:`VendorFailed`. What each call means is said in ``hami.hookspecs``.
    """

    def __init__(
        self,
        *,
        profile: VendorProfile,
        distribution: str,
        version: str,
        implemented: Iterable[str],
        calls: Mapping[str, Callable[..., Any]],
        on_failure: Callable[[VendorFailure], None],
        on_fit: Callable[[VendorKey, float], None] = ignore_fit,
    ) -> None:
        self.profile = profile
        self.distribution = distribution
        self.version = version
        self.hooks = tuple(sorted(implemented))
        self.scores = "hami_score" in self.hooks
        self.chooses = "hami_choose" in self.hooks
        self.fits = "hami_fit" in self.hooks
        self.has_node_hooks = any(hook in self.hooks for hook in _NODE_HOOKS)
        columns = HEALTH_AND_CORDON if _DECIDING & set(self.hooks) else ALL_COLUMNS
        self._default_rules = ModeRules(prefilter=columns)
        self._rules = {
            mode: replace(rules, prefilter=columns) if rules.prefilter is None else rules
            for mode, rules in profile.modes.items()
        }
        self._calls = calls
        self._reads_by_default = self._is_default("hami_parse_request")
        self._registers_by_default = self._is_default("hami_node_devices")
        self._on_failure = on_failure
        self._on_fit = on_fit

    def rules(self, mode: str) -> ModeRules:
        """The profile's rules for a device mode, with ``prefilter`` filled in."""
        return self._rules.get(mode, self._default_rules)

    # The scheduler's side.

    def node_devices(self, node: Node) -> Sequence[Device] | Malformed:
        if (
            self._registers_by_default
            and self.profile.node_annotations.register not in node.annotations
        ):
            return ()  # So it is for most vendors on most nodes.
        try:
            answer = self._ask("hami_node_devices", node=node)
            if isinstance(answer, Malformed):
                return answer
            devices: Sequence[Device] = self._each("hami_node_devices", answer, Device)
            for device in devices:
                self._check("hami_node_devices", device_problem(device, self.profile.key))
            return devices
        except _NoAnswerError as error:
            key = self.profile.node_annotations.register
            return Malformed(annotation=key, position="", text="", problem=str(error))

    def node_annotations(self, devices: Sequence[Device]) -> Mapping[str, str]:
        """The annotations for these devices.

        Raises:
            VendorFailed: the plugin failed; the node's annotations stay as they were.
        """
        published: Mapping[str, str] = self._node(
            "hami_node_annotations", self._texts, devices=devices
        )
        return published

    def admit(self, container: Container, pod: Pod, kind: ContainerKind) -> Admission | Denied:
        try:
            answer = self._ask("hami_admit", container=container, pod=pod, kind=kind)
            admitted: Admission | Denied = self._one("hami_admit", answer, Admission | Denied)
            return admitted
        except _NoAnswerError as error:
            # A vendor that fails must not stand in the way of pods that do not ask for it.
            return Denied(str(error)) if self._concerns(container) else Admission()

    def asks(self, container: Container, pod: Pod) -> bool:
        if self._reads_by_default:
            return defaults.asks(self.profile, container)
        return self.parse_request(container, pod) is not None

    def parse_request(self, container: Container, pod: Pod) -> DeviceRequest | Invalid | None:
        if self._reads_by_default:
            return defaults.parse_request(self.profile, container, pod)
        try:
            answer = self._ask("hami_parse_request", container=container, pod=pod)
            parsed: DeviceRequest | Invalid | None = self._one(
                "hami_parse_request", answer, DeviceRequest | Invalid | None
            )
            if isinstance(parsed, DeviceRequest):
                self._check("hami_parse_request", request_problem(parsed, self.profile.key))
            return parsed
        except _NoAnswerError as error:
            if not self._concerns(container):
                return None
            return Invalid(f"container {container.name}: {VENDOR_ERROR}: {error}")

    def charge(self, request: DeviceRequest, state: DeviceState, ctx: FitContext) -> Grant | Reason:
        try:
            answer = self._ask("hami_charge", request=request, state=state, ctx=ctx)
            charged: Grant | Reason = self._one("hami_charge", answer, Grant | Reason)
            if isinstance(charged, Grant):
                problem = grant_problem(charged, self.profile.key, state.device.id)
                self._check("hami_charge", problem)
            return charged
        except _NoAnswerError:
            return VENDOR_ERROR

    def accept(
        self,
        request: DeviceRequest,
        state: DeviceState,
        chosen: Sequence[Grant],
        ctx: FitContext,
    ) -> Reason | None:
        try:
            answer = self._ask("hami_accept", request=request, state=state, chosen=chosen, ctx=ctx)
            accepted: Reason | None = self._one("hami_accept", answer, Reason | None)
            return accepted
        except _NoAnswerError:
            return VENDOR_ERROR

    def choose(
        self,
        request: DeviceRequest,
        candidates: Sequence[tuple[DeviceState, Grant]],
        ctx: FitContext,
    ) -> Sequence[Grant] | Rejected | None:
        try:
            answer = self._ask("hami_choose", request=request, candidates=candidates, ctx=ctx)
            if answer is None or isinstance(answer, Rejected):
                return answer
            return self._each("hami_choose", answer, Grant)
        except _NoAnswerError as error:
            return _failed(len(candidates), error)

    def fit(
        self, request: DeviceRequest, states: Sequence[DeviceState], ctx: FitContext
    ) -> Placement | Rejected:
        begin = perf_counter()
        try:
            answer = self._ask("hami_fit", request=request, states=states, ctx=ctx)
            fitted: Placement | Rejected = self._one("hami_fit", answer, Placement | Rejected)
            if isinstance(fitted, Placement):
                for grant in fitted.grants:
                    self._check("hami_fit", grant_problem(grant, self.profile.key))
            return fitted
        except _NoAnswerError as error:
            return _failed(len(states), error)
        finally:
            self._on_fit(self.profile.key, perf_counter() - begin)

    def score(
        self,
        request: DeviceRequest,
        placement: Placement,
        before: Sequence[DeviceState],
        policy: NodePolicy,
    ) -> float | None:
        """None when the plugin failed: the node is refused."""
        try:
            answer = self._ask(
                "hami_score", request=request, placement=placement, before=before, policy=policy
            )
            score: float = self._one("hami_score", answer, float | int)
            # Not isfinite: an int may be larger than any float, and no comparison holds for NaN.
            if not abs(score) <= sys.float_info.max:
                self._fail("hami_score", f"returned {shortened(repr(score))}, which is not finite")
        except _NoAnswerError:
            return None
        return float(score)

    def allocation_annotations(
        self, allocation: PodAllocation, devices: Sequence[Device], pod: Pod, now: datetime
    ) -> Mapping[str, str] | None:
        """None when the plugin failed: the placement is refused."""
        try:
            answer = self._ask(
                "hami_allocation_annotations",
                allocation=allocation,
                devices=devices,
                pod=pod,
                now=now,
            )
            return self._texts("hami_allocation_annotations", answer)
        except _NoAnswerError:
            return None

    def restore(self, pod: Pod, allocation: PodAllocation) -> PodAllocation | Corrupt:
        try:
            answer = self._ask("hami_restore", pod=pod, allocation=allocation)
            restored: PodAllocation | Corrupt = self._one(
                "hami_restore", answer, PodAllocation | Corrupt
            )
            if restored is allocation:
                return allocation
            if isinstance(restored, PodAllocation) and not self._completes(allocation, restored):
                problem = "returned other grants than its own changed, or a lower charge"
                self._fail("hami_restore", problem)
            return restored
        except _NoAnswerError as error:
            mine = {g.device_id for g in allocation.grants if g.vendor == self.profile.key}
            return Corrupt(tuple(sorted(mine)), str(error))

    def _completes(self, before: PodAllocation, after: PodAllocation) -> bool:
        """Nothing is different but this vendor's grants, and those take at least as much."""
        if (before.node, len(before.grants)) != (after.node, len(after.grants)):
            return False
        if [(c.name, c.kind, len(c.grants)) for c in before.containers] != [
            (c.name, c.kind, len(c.grants)) for c in after.containers
        ]:
            return False
        return all(
            new == old
            or (
                old.vendor == self.profile.key
                and (new.vendor, new.device_id) == (old.vendor, old.device_id)
                and not (new.usage - old.usage).negative
            )
            for old, new in zip(before.grants, after.grants, strict=True)
        )

    # The node's side.

    def discover(self, config: PluginConfig) -> Sequence[Device]:
        checked = partial(self._each, kind=Device)
        found: Sequence[Device] = self._node("hami_discover", checked, config=config)
        return found

    def node_options(self) -> Sequence[NodeOption]:
        checked = partial(self._each, kind=NodeOption)
        options: Sequence[NodeOption] = self._node("hami_node_options", checked)
        return options

    def static_devices(self, config: PluginConfig) -> Mapping[str, Sequence[Device]]:
        def checked(hook: str, answer: Any) -> Mapping[str, Sequence[Device]]:
            by_resource: Mapping[str, Any] = self._one(hook, answer, Mapping)
            return {
                self._one(hook, resource, str): self._each(hook, devices, Device)
                for resource, devices in by_resource.items()
            }

        found: Mapping[str, Sequence[Device]] = self._node(
            "hami_static_devices", checked, config=config
        )
        return found

    def static_edits(self, devices: Sequence[Device], config: PluginConfig) -> ContainerEdits:
        checked = partial(self._one, kind=ContainerEdits)
        edits: ContainerEdits = self._node(
            "hami_static_edits", checked, devices=devices, config=config
        )
        return edits

    def enforce(self, slice: Slice, config: PluginConfig) -> ContainerEdits:
        checked = partial(self._one, kind=ContainerEdits)
        edits: ContainerEdits = self._node("hami_enforce", checked, slice=slice, config=config)
        return edits

    def release(self, slice: Slice, config: PluginConfig) -> None:
        self._node("hami_release", self._nothing, slice=slice, config=config)

    def reconcile(self, live_slices: Sequence[Slice], config: PluginConfig) -> None:
        self._node("hami_reconcile", self._nothing, live_slices=live_slices, config=config)

    def check_health(self, devices: Sequence[Device]) -> Sequence[HealthChange]:
        checked = partial(self._each, kind=HealthChange)
        changes: Sequence[HealthChange] = self._node("hami_check_health", checked, devices=devices)
        return changes

    def measure(self, slices: Sequence[Slice]) -> Sequence[Measurement]:
        checked = partial(self._each, kind=Measurement)
        measured: Sequence[Measurement] = self._node("hami_measure", checked, slices=slices)
        return measured

    # The boundary.

    def _concerns(self, container: Container) -> bool:
        """The container names one of this vendor's resources."""
        names = self.profile.resources.all_names
        return any(name in container.limits or name in container.requests for name in names)

    def _check(self, hook: str, problem: str) -> None:
        if problem:
            self._fail(hook, problem)

    def _is_default(self, hook: str) -> bool:
        """Neither the vendor's own nor behind another plugin's wrapper."""
        return hook not in self.hooks and not isinstance(self._calls[hook], pluggy.HookCaller)

    def _ask(self, hook: str, **arguments: Any) -> Any:
        """Call the hook; an exception becomes a reported failure and ``_NoAnswerError``."""
        try:
            return self._calls[hook](profile=self.profile, **arguments)
        except (Exception, SystemExit) as error:  # the boundary: past here failures are values
            raise self._reported(hook, f"{type(error).__name__}: {error}", error) from error

    def _node(self, hook: str, checked: Callable[[str, Any], Any], **arguments: Any) -> Any:
        if hook not in self._calls:
            raise VendorFailed(f"{self.distribution} does not implement {hook}")
        try:
            return checked(hook, self._ask(hook, **arguments))
        except _NoAnswerError as error:
            raise VendorFailed(str(error)) from error.failure.error

    def _one(self, hook: str, answer: Any, kind: type | UnionType) -> Any:
        if not isinstance(answer, kind):
            self._instead(hook, answer, kind.__name__ if isinstance(kind, type) else str(kind))
        return answer

    def _nothing(self, hook: str, answer: Any) -> None:
        self._one(hook, answer, type(None))

    def _each(self, hook: str, answer: Any, kind: type) -> tuple[Any, ...]:
        try:
            items = tuple(self._one(hook, answer, Sequence))
        except (Exception, SystemExit) as error:
            if isinstance(error, _NoAnswerError):
                raise
            raise self._reported(hook, f"{type(error).__name__}: {error}", error) from error
        for item in items:
            self._one(hook, item, kind)
        return items

    def _texts(self, hook: str, answer: Any) -> Mapping[str, str]:
        if not _is_texts(answer):
            self._instead(hook, answer, "annotation keys and texts")
        texts: Mapping[str, str] = answer
        return texts

    def _instead(self, hook: str, answer: Any, expected: str) -> None:
        self._fail(hook, f"returned {shortened(repr(answer))} instead of {expected}")

    def _fail(self, hook: str, problem: str) -> None:
        raise self._reported(hook, problem, None)

    def _reported(self, hook: str, problem: str, error: BaseException | None) -> _NoAnswerError:
        failure = VendorFailure(self.profile.key, hook, self.distribution, problem, error)
        self._on_failure(failure)
        return _NoAnswerError(failure)


def _is_texts(answer: object) -> TypeGuard[Mapping[str, str]]:
    """Annotation keys and texts, as hooks return them."""
    return isinstance(answer, Mapping) and all(
        isinstance(part, str) for item in answer.items() for part in item
    )


def _failed(devices: int, error: _NoAnswerError) -> Rejected:
    return Rejected.of({VENDOR_ERROR: devices}, devices, details=[str(error)])
