"""What the core is told in place of an answer when a plugin fails.

Every refusal is offered ``problem`` (the failure in one sentence), ``error`` (what the plugin
raised, or None), ``profile`` and the hook's arguments, and takes by name those that it needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from hami.domain.admission import Admission, Denied
from hami.domain.allocations import Corrupt, PodAllocation
from hami.domain.devices import DeviceState, Grant
from hami.domain.errors import Malformed, VendorFailed
from hami.domain.kubernetes.objects import Container
from hami.domain.profile import VendorProfile
from hami.domain.reasons import VENDOR_ERROR, Reason, Rejected
from hami.domain.requests import Invalid


def raised(problem: str, error: BaseException | None) -> NoReturn:
    """Whoever asked keeps what it had and tries again.

    Raises:
        VendorFailed: always.
    """
    raise VendorFailed(problem) from error


def unreadable_devices(profile: VendorProfile, problem: str) -> Malformed:
    """The node keeps no device of this vendor."""
    key = profile.node_annotations.register
    return Malformed(annotation=key, position="", text="", problem=problem)


def denied_where_asked(
    profile: VendorProfile, problem: str, container: Container
) -> Admission | Denied:
    """The pod is denied, unless the container asks nothing of this vendor."""
    return Denied(problem) if _concerns(profile, container) else Admission()


def invalid_where_asked(
    profile: VendorProfile, problem: str, container: Container
) -> Invalid | None:
    """The request is invalid, unless the container asks nothing of this vendor."""
    if not _concerns(profile, container):
        return None
    return Invalid(f"container {container.name}: {VENDOR_ERROR}: {problem}")


def refused_device() -> Reason:
    """The device is refused."""
    return VENDOR_ERROR


def refused_candidates(problem: str, candidates: Sequence[tuple[DeviceState, Grant]]) -> Rejected:
    """The node is refused, with every device that was offered."""
    return _refused(len(candidates), problem)


def refused_states(problem: str, states: Sequence[DeviceState]) -> Rejected:
    """The node is refused, with every device on it."""
    return _refused(len(states), problem)


def refused_node() -> None:
    """The node is refused by whoever asked."""


def corrupt_devices(profile: VendorProfile, problem: str, allocation: PodAllocation) -> Corrupt:
    """This vendor's devices in the allocation take no new pod."""
    own = {grant.device_id for grant in allocation.grants if grant.vendor == profile.key}
    return Corrupt(tuple(sorted(own)), problem)


def _concerns(profile: VendorProfile, container: Container) -> bool:
    """The container names one of this vendor's resources."""
    names = profile.resources.all_names
    return any(name in container.limits or name in container.requests for name in names)


def _refused(devices: int, problem: str) -> Rejected:
    return Rejected.of({VENDOR_ERROR: devices}, devices, details=[problem])
