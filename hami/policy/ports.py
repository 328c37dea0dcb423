"""What the policies ask of vendors, so that they need no registry and no plugin.

``hami.vendors.registry.Vendors`` is the real one. Every call returns a value: a plugin's exception
has become that vendor's refusal before it gets here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from hami.domain.admission import Admission, Denied
from hami.domain.allocations import ContainerKind, Corrupt, PodAllocation
from hami.domain.devices import Device, DeviceState, Grant
from hami.domain.errors import Malformed
from hami.domain.objects import Container, Node, Pod
from hami.domain.profile import ModeRules, VendorProfile
from hami.domain.reasons import Reason, Rejected
from hami.domain.requests import DeviceRequest, FitContext, Invalid, Placement
from hami.domain.scheduling import NodePolicy
from hami.domain.units import VendorKey


class VendorCalls(Protocol):
    """One vendor: its profile, and its hooks or their defaults. See ``hami.hookspecs``."""

    @property
    def profile(self) -> VendorProfile: ...

    @property
    def scores(self) -> bool:
        """The vendor implements ``hami_score``."""
        ...

    @property
    def chooses(self) -> bool:
        """The vendor implements ``hami_choose``."""
        ...

    @property
    def fits(self) -> bool:
        """The vendor implements ``hami_fit``."""
        ...

    def rules(self, mode: str) -> ModeRules:
        """The profile's rules for a device mode, with ``prefilter`` filled in."""
        ...

    def node_devices(self, node: Node) -> Sequence[Device] | Malformed: ...

    def admit(self, container: Container, pod: Pod, kind: ContainerKind) -> Admission | Denied: ...

    def asks(self, container: Container, pod: Pod) -> bool:
        """``parse_request`` would not be None; cheaper where the vendor takes the default."""
        ...

    def parse_request(self, container: Container, pod: Pod) -> DeviceRequest | Invalid | None: ...

    def charge(
        self, request: DeviceRequest, state: DeviceState, ctx: FitContext
    ) -> Grant | Reason: ...

    def accept(
        self,
        request: DeviceRequest,
        state: DeviceState,
        chosen: Sequence[Grant],
        ctx: FitContext,
    ) -> Reason | None: ...

    def choose(
        self,
        request: DeviceRequest,
        candidates: Sequence[tuple[DeviceState, Grant]],
        ctx: FitContext,
    ) -> Sequence[Grant] | Rejected | None: ...

    def fit(
        self, request: DeviceRequest, states: Sequence[DeviceState], ctx: FitContext
    ) -> Placement | Rejected: ...

    def score(
        self,
        request: DeviceRequest,
        placement: Placement,
        before: Sequence[DeviceState],
        policy: NodePolicy,
    ) -> float | None:
        """None when the vendor's plugin failed: the node is refused."""
        ...

    def allocation_annotations(
        self, allocation: PodAllocation, devices: Sequence[Device], pod: Pod, now: datetime
    ) -> Mapping[str, str] | None:
        """None when the vendor's plugin failed: the placement is refused."""
        ...

    def restore(self, pod: Pod, allocation: PodAllocation) -> PodAllocation | Corrupt: ...


class VendorRegistry(Protocol):
    """Every vendor, by key, in the order of their keys."""

    def __getitem__(self, key: VendorKey, /) -> VendorCalls: ...

    def __iter__(self) -> Iterator[VendorKey]: ...

    def __len__(self) -> int: ...

    def manages(self, resource: str) -> bool:
        """A registered vendor counts this resource (count, memory or cores)."""
        ...
