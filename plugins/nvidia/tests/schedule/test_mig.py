"""Which MIG instance a slice becomes: profile, placement, charge, and never two in one place."""

from itertools import combinations

import pytest
from hami_nvidia.schedule.mig_placement import MIG_INSTANCE, MigPlacement
from hypothesis import given
from hypothesis import strategies as st

from hami.domain import reasons
from hami.domain.allocations import ContainerAllocation, ContainerKind
from hami.domain.devices import DeviceState, Grant
from hami.domain.reasons import Reason
from hami.domain.requests import Placement

from ..builders import (
    A100,
    ONE,
    SEVEN,
    THREE,
    TWO,
    a_context,
    a_gpu,
    a_mig_gpu,
    a_mig_grant,
    a_profile,
    asking,
    idle,
    places,
    refused,
    running,
    the_vendor,
    used,
)


def charged(request, state, **context):
    return the_vendor().charge(request, state, a_context(**context))


def placed(request, states, **context):
    placement = the_vendor().fit(request, states, a_context(**context))
    assert isinstance(placement, Placement), str(placement)
    return placement.grants


def test_a_slice_is_charged_as_its_profile():
    grant = charged(asking(memory=10000), *idle(a_mig_gpu()))
    assert (grant.slots, grant.memory_mib, grant.cores) == (1, 10240, 28)
    assert places([grant]) == [("2g.10gb", 0)]
    assert grant.extra.encode() == {
        "nvidia.mig": {"profile": "2g.10gb", "placement": {"start": 0, "size": 2}}
    }


def test_the_first_starts_leave_room_for_big_profiles():
    state, taken = DeviceState(a_mig_gpu()), []
    for memory in (20000, 10000, 5000, 5000):
        grant = charged(asking(memory=memory), state)
        state = state.taking(grant)
        taken.append(grant)
    assert places(taken) == [("3g.20gb", 4), ("2g.10gb", 0), ("1g.5gb", 3), ("1g.5gb", 2)]


@pytest.mark.parametrize(
    ("request_", "instances", "expected"),
    [
        pytest.param(asking(memory=5000), [], ("1g.5gb", 6), id="1g from the top"),
        pytest.param(asking(memory=10000), [], ("2g.10gb", 0), id="2g from the bottom"),
        pytest.param(asking(memory=20000), [], ("3g.20gb", 4), id="3g from the top"),
        pytest.param(asking(memory=30000), [], ("7g.40gb", 0), id="7g where it goes"),
        pytest.param(
            asking(memory=5000),
            [(TWO, 0), (TWO, 2), (TWO, 4)],
            ("1g.5gb", 6),
            id="1g above three 2g",
        ),
        pytest.param(
            asking(memory=10000),
            [(ONE, 4), (ONE, 2), (ONE, 0)],
            reasons.MIG_INFEASIBLE,
            id="every 2g blocked by a 1g, every 3g too",
        ),
        pytest.param(
            asking(memory=5000),
            [(ONE, n) for n in range(7) if n != 2],
            ("1g.5gb", 2),
            id="the one hole",
        ),
        pytest.param(
            asking(memory=10000),
            [(TWO, 0), (ONE, 2), (ONE, 4)],
            reasons.MIG_INFEASIBLE,
            id="holes of one slice only",
        ),
        pytest.param(asking(percent=10), [], ("1g.5gb", 6), id="10 % is 4096 MiB"),
        pytest.param(asking(percent=25), [], ("2g.10gb", 0), id="25 % is 10240 MiB"),
        pytest.param(
            asking(percent=25),
            [(TWO, 0), (TWO, 2), (TWO, 4)],
            reasons.MIG_INFEASIBLE,
            id="25 % where only a 1g is free",
        ),
        pytest.param(asking(memory=1), [], ("1g.5gb", 6), id="the smallest for 1 MiB"),
    ],
)
def test_profile_and_placement(request_, instances, expected):
    answer = charged(request_, running(a_mig_gpu(), *instances))
    assert (answer if isinstance(answer, Reason) else places([answer])[0]) == expected


def test_a_bigger_profile_serves_where_the_smaller_has_no_place():
    gpu = a_mig_gpu(profiles=[TWO, a_profile("1g.10gb", 9984, 14, 1, (6,), 1)])
    assert places([charged(asking(memory=9000), running(gpu, (ONE, 6)))]) == [("2g.10gb", 0)]


def test_of_two_profiles_with_equal_memory_the_one_with_fewer_slices_is_taken():
    big = a_profile("4g.20gb", 20480, 56, 4, (0,), 4)
    gpu = a_mig_gpu(profiles=[big, THREE])
    assert places([charged(asking(memory=20000), *idle(gpu))]) == [("3g.20gb", 4)]


class TestWholeDevice:
    def test_fixed_all_of_the_memory_takes_the_largest_profile(self):
        """MIG keeps memory back: HAMi finds no profile as large as the device and refuses."""
        grant = charged(asking(percent=100, cores=100), *idle(a_mig_gpu()))
        assert places([grant]) == [("7g.40gb", 0)]
        assert (grant.memory_mib, grant.cores) == (40192, 100)

    def test_the_same_memory_in_mib_fits_no_profile(self):
        answer = charged(asking(memory=40960), *idle(a_mig_gpu()))
        assert answer is reasons.MIG_INFEASIBLE

    def test_a_device_in_use_is_refused(self):
        state = running(a_mig_gpu(), (ONE, 6))
        assert charged(asking(percent=100), state) is reasons.NO_MEMORY

    def test_two_slices_take_two_devices(self):
        states = idle(a_mig_gpu("GPU-0"), a_mig_gpu("GPU-1"))
        grants = placed(asking(2, percent=100, cores=100), states)
        assert [grant.device_id for grant in grants] == ["GPU-1", "GPU-0"]


@pytest.mark.parametrize(
    ("request_", "state", "reason"),
    [
        pytest.param(
            asking(memory=20000),
            running(a_mig_gpu(), (THREE, 0), (TWO, 4)),
            "CardInsufficientMemory",
            id="less memory is free",
        ),
        pytest.param(
            asking(memory=5000, cores=40),
            running(a_mig_gpu(), (THREE, 0), (TWO, 4)),
            "CardInsufficientCore",
            id="less compute is free",
        ),
        pytest.param(
            asking(memory=5000, cores=100),
            running(a_mig_gpu(), (a_profile("0g", 0, 0, 0, (0,), 1), 0)),
            "ExclusiveDeviceAllocateConflict",
            id="an exclusive request on a device in use",
        ),
        pytest.param(
            asking(memory=5000),
            running(a_mig_gpu(slots=1), (ONE, 6)),
            "CardTimeSlicingExhausted",
            id="no slot is free",
        ),
        pytest.param(
            asking(memory=5000), *idle(a_mig_gpu(profiles=())), "CardMigTopologyInfeasible"
        ),
        pytest.param(
            asking(memory=5000),
            used(a_mig_gpu()).taking(Grant(device_id="GPU-0", vendor="NVIDIA", memory_mib=1)),
            "UnknownUsage",
            id="a pod runs there without an instance",
        ),
    ],
)
def test_a_mig_device_is_refused(request_, state, reason):
    assert refused(request_, [state]) == f"1/1 {reason}"


def test_seven_slices_fit_though_their_cores_add_up_to_more_than_100():
    fifteen = a_profile("1g.5gb", 4864, 15, 1, range(7), 1)
    grants = placed(asking(7, memory=4000), idle(a_mig_gpu(profiles=[fifteen])))
    assert sum(grant.cores for grant in grants) == 105
    assert sorted(start for _, start in places(grants)) == list(range(7))


class TestSeveralSlices:
    def test_come_from_one_device_at_different_places(self):
        grants = placed(asking(2, memory=10000), idle(a_mig_gpu()))
        assert {grant.device_id for grant in grants} == {"GPU-0"}
        assert places(grants) == [("2g.10gb", 0), ("2g.10gb", 2)]

    def test_are_counted_when_one_is_too_many(self):
        gpu = a_mig_gpu(profiles=[a_profile("2g.10gb", 10240, 28, 2, (0,), 2)])
        assert refused(asking(2, memory=10000), idle(gpu)) == (
            "1/1 AllocatedCardsInsufficientRequest, 1/1 CardMigTopologyInfeasible"
        )

    def test_go_on_with_the_next_device(self):
        one_place = [a_profile("2g.10gb", 10240, 28, 2, (0,), 2)]
        states = idle(a_mig_gpu("GPU-0", one_place), a_mig_gpu("GPU-1", one_place))
        grants = placed(asking(2, memory=10000), states)
        assert [grant.device_id for grant in grants] == ["GPU-1", "GPU-0"]

    def test_mix_mig_and_shared_devices(self):
        states = idle(a_gpu("GPU-0", memory=40960), a_mig_gpu("GPU-1", [TWO, ONE]))
        grants = placed(asking(4, memory=10000), states)
        assert sorted(grant.device_id for grant in grants) == ["GPU-0", *["GPU-1"] * 3]


def test_an_instance_on_another_device_takes_no_place_here():
    full = running(a_mig_gpu("GPU-1"), (SEVEN, 0))
    grants = placed(asking(memory=10000), [*idle(a_mig_gpu("GPU-0")), full])
    assert [grant.device_id for grant in grants] == ["GPU-0"]


def test_fixed_quota_counts_the_profile_and_not_the_request():
    """HAMi lets 10000 MiB of quota pay for 10240."""

    def up_to(limit):
        return lambda grants: sum(grant.memory_mib for grant in grants) <= limit

    request, states = asking(memory=10000), idle(a_mig_gpu())
    assert refused(request, states, allowed=up_to(10000)) == "1/1 ResourceQuotaNotFit"
    assert places(placed(request, states, allowed=up_to(10240))) == [("2g.10gb", 0)]


class TestAfterAnInitContainer:
    """HAMi's device plugin keeps a pod's instances until the pod is gone."""

    def placed_after(self, init, memory):
        done = ContainerAllocation(
            name="init", kind=ContainerKind.INIT, grants=(a_mig_grant("GPU-0", *init),)
        )
        answer = charged(asking(memory=memory), *idle(a_mig_gpu()), granted=(done,))
        return answer if isinstance(answer, Reason) else places([answer])[0]

    def test_the_same_instance_is_used_again(self):
        assert self.placed_after((SEVEN, 0), 30000) == ("7g.40gb", 0)
        assert self.placed_after((ONE, 6), 5000) == ("1g.5gb", 6)

    def test_another_instance_keeps_out_of_its_place(self):
        assert self.placed_after((ONE, 0), 10000) == ("2g.10gb", 2)

    def test_a_larger_one_is_used_again_where_it_leaves_no_other_place(self):
        assert self.placed_after((SEVEN, 0), 5000) == ("7g.40gb", 0)

    def test_a_smaller_one_in_the_way_refuses_the_device(self):
        assert self.placed_after((TWO, 0), 30000) is reasons.MIG_INFEASIBLE

    def test_the_instance_on_another_device_does_not_matter(self):
        done = ContainerAllocation(
            name="init", kind=ContainerKind.INIT, grants=(a_mig_grant("GPU-1", SEVEN, 0),)
        )
        answer = charged(asking(memory=5000), *idle(a_mig_gpu("GPU-0")), granted=(done,))
        assert places([answer]) == [("1g.5gb", 6)]


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        pytest.param((0, 2), (2, 2), False, id="neighbours"),
        pytest.param((0, 2), (1, 1), True, id="one inside the other"),
        pytest.param((0, 4), (2, 4), True, id="half over half"),
        pytest.param((3, 1), (3, 1), True, id="the same"),
    ],
)
def test_overlap(a, b, expected):
    first, second = (MigPlacement(start=start, size=size) for start, size in (a, b))
    assert first.overlaps(second) is expected
    assert second.overlaps(first) is expected


@st.composite
def _profiles(draw):
    """Up to four profiles with random sizes and starts on eight memory slices."""
    found = []
    for slices in draw(st.lists(st.integers(1, 7), min_size=1, max_size=4, unique=True)):
        starts = draw(st.lists(st.integers(0, 8 - slices), min_size=1, max_size=7, unique=True))
        memory = draw(st.integers(1, 5)) * 1000 * slices
        found.append(
            a_profile(f"{slices}g.{memory}mb", memory, 10 * slices, slices, starts, slices)
        )
    return found


_STEPS = st.lists(
    st.one_of(
        st.builds(lambda memory: ("take", memory), st.integers(1, 40000)),
        st.builds(lambda position: ("free", position), st.integers(0, 6)),
    ),
    max_size=25,
)


@given(profiles=st.one_of(st.just(list(A100)), _profiles()), steps=_STEPS)
def test_law_instances_never_overlap_and_a_refusal_means_that_there_is_no_place(profiles, steps):
    vendor, context = the_vendor(), a_context()
    gpu = a_mig_gpu(profiles=profiles, memory=1_000_000, cores=10_000)
    live: list[Grant] = []
    for step, value in steps:
        if step == "free":
            del live[value : value + 1]
            continue
        answer = vendor.charge(asking(memory=value), DeviceState(gpu).taking(*live), context)
        taken = [grant.extra.get(MIG_INSTANCE).placement for grant in live]
        free = [
            profile.memory_mib
            for profile in profiles
            if profile.memory_mib >= value
            for place in profile.placements
            if not any(place.overlaps(other) for other in taken)
        ]
        if isinstance(answer, Reason):
            assert answer is reasons.MIG_INFEASIBLE
            assert not free
        else:
            assert answer.memory_mib == min(free)
            live.append(answer)
        now = [grant.extra.get(MIG_INSTANCE).placement for grant in live]
        assert not any(a.overlaps(b) for a, b in combinations(now, 2))


@given(data=st.data())
def test_law_the_order_in_which_instances_and_profiles_are_listed_does_not_matter(data):
    taken = data.draw(st.lists(st.integers(0, 6), unique=True))
    shuffled = data.draw(st.permutations(taken))
    profiles = data.draw(st.permutations(A100))
    request = asking(memory=data.draw(st.integers(1, 40000)))
    usual = charged(request, running(a_mig_gpu(), *((ONE, n) for n in taken)))
    other = charged(request, running(a_mig_gpu(profiles=profiles), *((ONE, n) for n in shuffled)))
    assert usual == other


@pytest.mark.parametrize(
    ("count", "memory", "cores"),
    [(2, 20000, 60), (7, 5000, 20), (2, 10000, 100)],
)
def test_slices_of_one_request_do_not_stand_in_each_others_way(count, memory, cores):
    """Compute is compared with the usage before the request, as in HAMi: an idle device serves it."""
    states = idle(a_mig_gpu(slots=7))
    assert len(placed(asking(count, memory=memory, cores=cores), states)) == count


def test_compute_that_other_pods_have_is_not_asked_again():
    state = running(a_mig_gpu(), (THREE, 4))
    assert refused(asking(memory=5000, cores=60), [state]) == "1/1 CardInsufficientCore"
