"""What the policies ask of vendors, so that they need no registry and no plugin.

``hami.vendors.registry.Vendors`` is the real one. Every call that a policy makes returns a value:
a plugin's exception has become that vendor's refusal before it gets here.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Protocol

from hami.domain.kubernetes.objects import Container, Pod
from hami.domain.profile import ModeRules, VendorProfile
from hami.domain.units import VendorKey
from hami.hookspecs.calls import SchedulerCalls


class VendorCalls(SchedulerCalls):
    """One vendor: its profile, and its hooks or their defaults as methods."""

    profile: VendorProfile
    scores: bool
    """The vendor implements ``hami_score``."""
    chooses: bool
    """The vendor implements ``hami_choose``."""
    fits: bool
    """The vendor implements ``hami_fit``."""

    @abstractmethod
    def rules(self, mode: str) -> ModeRules:
        """The profile's rules for a device mode, with ``prefilter`` filled in."""

    def asks(self, container: Container, pod: Pod) -> bool:
        """The container asks something of this vendor, readable or not."""
        return self.parse_request(container, pod) is not None


class VendorRegistry(Protocol):
    """Every vendor, by key, in the order of their keys."""

    def __getitem__(self, key: VendorKey, /) -> VendorCalls: ...

    def __iter__(self) -> Iterator[VendorKey]: ...

    def __len__(self) -> int: ...

    def manages(self, resource: str) -> bool:
        """A registered vendor counts this resource (count, memory or cores)."""
        ...
