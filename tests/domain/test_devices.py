"""Usage arithmetic, and a device's state after grants."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hami.domain.allocations import ContainerAllocation, ContainerKind, PodAllocation
from hami.domain.devices import UNUSED, Device, DeviceState, Grant, Usage
from hami.domain.units import mib_down, mib_up

amounts = st.integers(0, 10**6)
usages = st.builds(Usage, amounts, amounts, amounts)


@given(a=usages, b=usages, c=usages)
def test_usage_adds_up_in_any_order_and_comes_off_again(a, b, c):
    assert a + b == b + a
    assert (a + b) + c == a + (b + c)
    assert a + UNUSED == a
    assert (a + b) - b == a
    assert not (a + b).negative


@given(a=usages, b=usages)
def test_a_peak_holds_both_and_no_more(a, b):
    peak = a.peak(b)
    assert not (peak - a).negative
    assert not (peak - b).negative
    assert peak == b.peak(a)
    for field in ("slots", "memory_mib", "cores"):
        assert getattr(peak, field) in {getattr(a, field), getattr(b, field)}


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        pytest.param(Usage(0, 0, 0), False, id="nothing is not negative"),
        pytest.param(Usage(-1, 0, 0), True, id="slots"),
        pytest.param(Usage(0, -1, 0), True, id="memory"),
        pytest.param(Usage(0, 0, -1), True, id="cores"),
        pytest.param(Usage(9, 9, -1), True, id="one dimension is enough"),
    ],
)
def test_negative(usage, expected):
    assert usage.negative is expected


def a_grant(device: str = "d0", memory: int = 0, cores: int = 0, slots: int = 1) -> Grant:
    return Grant(device_id=device, vendor="ACME", slots=slots, memory_mib=memory, cores=cores)


def test_a_grant_is_used_as_it_was_charged():
    assert a_grant(memory=100, cores=5, slots=2).usage == Usage(2, 100, 5)


def test_a_state_takes_grants_and_the_former_one_stays():
    before = DeviceState(Device(id="d0", vendor="ACME"), Usage(1, 10, 1))
    one, two = a_grant(memory=100), a_grant(cores=30)
    after = before.taking(one, two)
    assert after.usage == Usage(3, 110, 31)
    assert after.grants == (one, two)
    assert before.usage == Usage(1, 10, 1)
    assert before.grants == ()


def test_after_the_init_containers_only_they_are_given_back():
    def container(kind: ContainerKind) -> ContainerAllocation:
        return ContainerAllocation(name=kind.value, kind=kind, grants=(a_grant(kind.value),))

    allocation = PodAllocation(node="n1", containers=tuple(map(container, ContainerKind)))
    after = allocation.after_init()
    assert [grant.device_id for grant in after.grants] == ["sidecar", "app"]
    assert [c.name for c in after.containers] == [c.name for c in allocation.containers]
    assert after.after_init() == after


@given(count=st.integers(0, 1 << 50))
def test_bytes_become_mebibytes_down_for_hardware_and_up_for_requests(count):
    assert mib_down(count) << 20 <= count <= mib_up(count) << 20
    assert mib_up(count) - mib_down(count) == (count % (1 << 20) > 0)
