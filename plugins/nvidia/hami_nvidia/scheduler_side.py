"""The scheduler's hooks: each one line into the module that does the work. Pure.

What is not here follows the profile (``hami.policy.profile.defaults``): requests are read as for
any vendor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hami.domain import reasons
from hami.domain.admission import Admission, Denied
from hami.domain.allocations import Corrupt, PodAllocation
from hami.domain.devices import Device, DeviceState, Grant
from hami.domain.errors import Malformed
from hami.domain.kubernetes.objects import Container, Node, Pod
from hami.domain.profile import VendorProfile
from hami.domain.reasons import Reason, Rejected
from hami.domain.requests import DeviceRequest, FitContext
from hami.hookspecs import PluginConfig, hookimpl
from hami.policy.profile import defaults
from hami_nvidia.schedule import (
    admission,
    mig_annotation,
    mig_placement,
    node_annotations,
    topology,
)
from hami_nvidia.schedule.profile import NvidiaProfile, profile_of
from hami_nvidia.settings.config import read_config


class NvidiaScheduling:
    """The scheduler's hooks. Keeps no state."""

    @hookimpl
    def hami_vendors(self, config: PluginConfig) -> Sequence[VendorProfile]:
        return (profile_of(read_config(config)),)

    @hookimpl
    def hami_node_devices(self, profile: VendorProfile, node: Node) -> Sequence[Device] | Malformed:
        return node_annotations.node_devices(profile, node)

    @hookimpl
    def hami_node_annotations(
        self, profile: VendorProfile, devices: Sequence[Device]
    ) -> Mapping[str, str]:
        return node_annotations.node_annotations(profile, devices)

    @hookimpl
    def hami_admit(self, profile: NvidiaProfile, container: Container) -> Admission | Denied:
        return admission.admit(profile, container)

    @hookimpl
    def hami_charge(
        self, profile: VendorProfile, request: DeviceRequest, state: DeviceState, ctx: FitContext
    ) -> Grant | Reason:
        """A MIG instance in mode ``mig``; memory and cores as asked otherwise.

        A device that was taken out of mode ``mig`` under a running instance is not to be trusted.
        """
        if state.device.mode == mig_placement.MIG_MODE:
            return mig_placement.charge_instance(request, state, ctx)
        if any(grant.extra.get(mig_placement.MIG_INSTANCE) is not None for grant in state.grants):
            return reasons.UNKNOWN_USAGE
        return defaults.charge(profile, request, state, ctx)

    @hookimpl
    def hami_accept(
        self, request: DeviceRequest, state: DeviceState, chosen: Sequence[Grant]
    ) -> Reason | None:
        if state.device.mode == mig_placement.MIG_MODE:
            return mig_placement.refuse_cores(request, state, chosen)
        return None

    @hookimpl
    def hami_choose(
        self,
        request: DeviceRequest,
        candidates: Sequence[tuple[DeviceState, Grant]],
        ctx: FitContext,
    ) -> Sequence[Grant] | Rejected | None:
        return topology.choose(request, candidates, ctx)

    @hookimpl
    def hami_allocation_annotations(
        self, profile: VendorProfile, allocation: PodAllocation, pod: Pod
    ) -> Mapping[str, str]:
        return mig_annotation.mig_annotations(profile.key, allocation, pod)

    @hookimpl
    def hami_restore(
        self, profile: VendorProfile, pod: Pod, allocation: PodAllocation
    ) -> PodAllocation | Corrupt:
        return mig_annotation.restore_instances(profile, pod, allocation)
