"""What pods ask of a vendor, drawn at random, and the context in which it is fitted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from hypothesis import strategies as st

from hami.domain.devices import Device, Grant
from hami.domain.profile import VendorProfile
from hami.domain.requests import DeviceRequest, FitContext
from hami.domain.scheduling import DevicePolicy, SchedulingPolicy
from hami.testing.request_rules import parsed
from hami.testing.subject import Subject, container_asking, pod_of

Limits = Mapping[str, str]


def limits(profile: VendorProfile, devices: Sequence[Device]) -> st.SearchStrategy[Limits]:
    """Draw limits near what these devices hold: a part of it, all of it, or a little more."""
    names, unit = profile.resources, profile.memory_factor
    largest = max(device.memory_mib for device in devices)
    shares = st.sampled_from((8, 4, 3, 2, 1)).map(lambda part: largest // part)
    memory = (shares | st.just(largest + unit) | st.integers(1, largest + largest // 8 + 1)).map(
        lambda mib: str(max(mib // unit, 1))
    )
    amounts = {
        names.memory: memory,
        names.memory_percentage: st.sampled_from((1, 10, 25, 33, 50, 100)).map(str),
        names.cores: st.sampled_from((0, 1, 30, 50, 70, 100)).map(str),
    }
    return st.fixed_dictionaries(
        {names.count: st.integers(1, len(devices) + 1).map(str)},
        optional={name: texts for name, texts in amounts.items() if name},
    )


def pods(
    profile: VendorProfile, devices: Sequence[Device], *, at_most: int = 12
) -> st.SearchStrategy[list[Limits]]:
    """Draw pods that come one after the other until the node is full, and a few more.

    They are of all sorts, or all alike, or first many alike and then of all sorts.
    """
    each = limits(profile, devices)
    mixed = st.lists(each, min_size=1, max_size=at_most)
    alike = st.sampled_from((_whole(profile), _small(profile, devices))) | each
    same = st.tuples(alike, st.integers(1, at_most)).map(lambda drawn: [drawn[0]] * drawn[1])
    return mixed | same | st.tuples(same, mixed).map(lambda drawn: drawn[0] + drawn[1])


def _whole(profile: VendorProfile) -> Limits:
    return {profile.resources.count: "1"}


def _small(profile: VendorProfile, devices: Sequence[Device]) -> Limits:
    """Two slices, so small that a device holds many."""
    names = profile.resources
    mib = min(device.memory_mib for device in devices) // 16
    amounts = {names.memory: str(max(mib // profile.memory_factor, 1)), names.cores: "2"}
    return {names.count: "2"} | {name: text for name, text in amounts.items() if name}


def policies() -> st.SearchStrategy[SchedulingPolicy]:
    """Draw an order of devices that a pod may ask for."""
    devices = (
        DevicePolicy(),
        DevicePolicy(chain=("binpack",)),
        DevicePolicy(chain=("numa", "spread")),
        DevicePolicy(mutex=True),
        DevicePolicy(topology_aware=True),
    )
    return st.sampled_from(devices).map(lambda policy: SchedulingPolicy(device=policy))


def understood(subject: Subject, asks: Limits) -> DeviceRequest | None:
    """The request, or None where this vendor rightly refuses or ignores these limits."""
    request = parsed(subject, asks)
    return request if isinstance(request, DeviceRequest) else None


def _anything(_: Sequence[Grant]) -> bool:
    return True


def context(
    subject: Subject,
    asks: Limits | None = None,
    *,
    policy: SchedulingPolicy | None = None,
    allowed: Callable[[Sequence[Grant]], bool] = _anything,
) -> FitContext:
    """A fresh pod on the subject's node."""
    container = container_asking(asks or {subject.profile.resources.count: "1"})
    return FitContext(
        pod=pod_of(container),
        node=subject.node,
        container=container,
        policy=policy or SchedulingPolicy(),
        allowed=allowed,
    )
