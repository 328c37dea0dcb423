"""The scheduler's hooks of ``MOCK``: every one, pure, and failing when it is asked to.

Where the behaviour is the default, the hook calls ``hami.policy.profile.defaults``: so that each
can fail, and each can be found here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from msgspec.structs import replace

from hami.domain.admission import Admission, Denied
from hami.domain.allocations import ContainerKind, Corrupt, PodAllocation
from hami.domain.devices import Device, DeviceState, Grant
from hami.domain.errors import Malformed
from hami.domain.extra import ExtraKey
from hami.domain.kubernetes.objects import Container, Node, Pod
from hami.domain.profile import (
    ALL_COLUMNS,
    ModeRules,
    NodeAnnotations,
    PodAnnotations,
    ResourceNames,
    VendorProfile,
)
from hami.domain.reasons import Reason, Rejected
from hami.domain.requests import DeviceRequest, FitContext, Invalid, Placement
from hami.domain.units import VendorKey
from hami.hookspecs import PluginConfig, hookimpl
from hami.hookspecs.hook import Answer, Asked, Hook, Refusal
from hami.policy.fit import exact
from hami.policy.ports import VendorCalls
from hami.policy.profile import defaults
from hami_mock.catalog import Catalog, builtin_catalog
from hami_mock.failures import FAIL, MockFailure, asked_failures, fail_if_asked
from hami_mock.settings import MockProfile, MockSettings, read_settings, settings_of
from hami_mock.simulated import node_annotations
from hami_mock.tags import TAGS, encode_tags, restore_tags, tagged

SCORE_FAILS = ExtraKey("mock.score-fails", str)
"""On a request: ``hami_score`` sees neither pod nor node, so the request tells it to fail."""


class MockScheduling:
    """Keeps one thing: the package's own catalogue, once it has been read."""

    def __init__(self) -> None:
        self._builtin: Catalog | None = None

    @hookimpl
    def hami_vendors(self, config: PluginConfig) -> Sequence[VendorProfile]:
        settings = read_settings(config)
        fail_if_asked("hami_vendors", settings)
        return (_profile(settings),)

    @hookimpl
    def hami_node_devices(self, profile: VendorProfile, node: Node) -> Sequence[Device] | Malformed:
        asked = asked_failures(node.annotations)
        if isinstance(asked, Malformed):
            return asked
        fail_if_asked("hami_node_devices", settings_of(profile), node)
        return defaults.node_devices(profile, node)

    @hookimpl
    def hami_node_annotations(
        self, profile: VendorProfile, devices: Sequence[Device]
    ) -> Mapping[str, str]:
        fail_if_asked("hami_node_annotations", settings_of(profile))
        return defaults.node_annotations(profile, devices)

    @hookimpl
    def hami_admit(
        self, profile: VendorProfile, container: Container, pod: Pod, kind: ContainerKind
    ) -> Admission | Denied:
        fail_if_asked("hami_admit", settings_of(profile), pod)
        return defaults.admit(profile, container, pod, kind)

    @hookimpl
    def hami_parse_request(
        self, profile: VendorProfile, container: Container, pod: Pod
    ) -> DeviceRequest | Invalid | None:
        fail_if_asked("hami_parse_request", settings_of(profile), pod)
        request = defaults.parse_request(profile, container, pod)
        if not isinstance(request, DeviceRequest):
            return request
        asked = asked_failures(pod.annotations)
        if isinstance(asked, Malformed):
            return Invalid(f"container {container.name}: {asked}")
        if "hami_score" in asked:
            return replace(request, extra=request.extra.with_(SCORE_FAILS, pod.full_name))
        return request

    @hookimpl
    def hami_charge(
        self, profile: VendorProfile, request: DeviceRequest, state: DeviceState, ctx: FitContext
    ) -> Grant | Reason:
        fail_if_asked("hami_charge", settings_of(profile), ctx.pod, ctx.node)
        return tagged(defaults.charge(profile, request, state, ctx), ctx.pod)

    @hookimpl
    def hami_accept(
        self,
        profile: VendorProfile,
        request: DeviceRequest,
        state: DeviceState,
        chosen: Sequence[Grant],
        ctx: FitContext,
    ) -> Reason | None:
        fail_if_asked("hami_accept", settings_of(profile), ctx.pod, ctx.node)
        return None

    @hookimpl
    def hami_choose(
        self,
        profile: VendorProfile,
        request: DeviceRequest,
        candidates: Sequence[tuple[DeviceState, Grant]],
        ctx: FitContext,
    ) -> Sequence[Grant] | Rejected | None:
        fail_if_asked("hami_choose", settings_of(profile), ctx.pod, ctx.node)
        return None

    @hookimpl
    def hami_fit(
        self,
        profile: VendorProfile,
        request: DeviceRequest,
        states: Sequence[DeviceState],
        ctx: FitContext,
    ) -> Placement | Rejected:
        """Run the core's loop over this plugin's own hooks.

        A failure in one of them is a failure of this hook: it refuses the node, not the device.
        """
        fail_if_asked("hami_fit", settings_of(profile), ctx.pod, ctx.node)
        return exact.place(_Own(self, profile), request, states, ctx)

    @hookimpl
    def hami_score(
        self,
        profile: VendorProfile,
        request: DeviceRequest,
        placement: Placement,
        before: Sequence[DeviceState],
    ) -> float:
        """-1 for each device that was unused before: keeps devices whole for who needs them.

        With this hook a pod is placed on every node that passed the prefilter before one is
        ranked.
        """
        fail_if_asked("hami_score", settings_of(profile))
        if (pod := request.extra.get(SCORE_FAILS)) is not None:
            raise MockFailure(f"hami_score fails because {FAIL} of pod {pod} says so")
        unused = {state.device.id for state in before if state.usage.slots == 0}
        return -float(len(unused & {grant.device_id for grant in placement.grants}))

    @hookimpl
    def hami_allocation_annotations(
        self, profile: VendorProfile, allocation: PodAllocation, pod: Pod
    ) -> Mapping[str, str]:
        fail_if_asked("hami_allocation_annotations", settings_of(profile), pod)
        return encode_tags(profile.key, allocation)

    @hookimpl
    def hami_restore(
        self, profile: VendorProfile, pod: Pod, allocation: PodAllocation
    ) -> PodAllocation | Corrupt:
        fail_if_asked("hami_restore", settings_of(profile), pod)
        return restore_tags(profile.key, pod, allocation)

    @hookimpl
    def hami_simulated_annotations(self, node: Node, config: PluginConfig) -> Mapping[str, str]:
        settings = read_settings(config)
        fail_if_asked("hami_simulated_annotations", settings, node)
        if self._builtin is None:
            self._builtin = builtin_catalog()
        return node_annotations(node, self._builtin.with_(settings))


@dataclass
class _Own(VendorCalls):
    """A vendor whose hooks are the plugin's own, without the boundary."""

    plugin: MockScheduling
    profile: VendorProfile
    chooses = True

    def rules(self, mode: str) -> ModeRules:
        return self.profile.rules(mode)

    def call_of(self, hook: Hook[Asked, Answer, Refusal]) -> Callable[Asked, Answer | Refusal]:
        return partial(getattr(self.plugin, hook.name), self.profile)


def _profile(settings: MockSettings) -> MockProfile:
    """Its ``hami_charge`` refuses no more than the default does, so the prefilter may decide."""
    return MockProfile(
        key=VendorKey("MOCK"),
        resources=ResourceNames(
            count="mock.hami.io/device",
            memory="mock.hami.io/memory",
            memory_percentage="mock.hami.io/memory-percentage",
            cores="mock.hami.io/cores",
        ),
        node_annotations=NodeAnnotations(register="hami.io/node-mock-register"),
        pod_annotations=PodAnnotations(
            to_allocate="hami.io/mock-devices-to-allocate",
            allocated="hami.io/mock-devices-allocated",
            also_written=(TAGS,),
            use_type=("mock.hami.io/use-type",),
            nouse_type=("mock.hami.io/nouse-type",),
            use_uuid=("mock.hami.io/use-uuid",),
            nouse_uuid=("mock.hami.io/nouse-uuid",),
            numa_bind="mock.hami.io/numa-bind",
            mode="mock.hami.io/mode",
        ),
        default_count=1,
        liveness="capacity",
        lock="none",
        modes={"mock": ModeRules(prefilter=ALL_COLUMNS)},
        settings=settings,
    )
