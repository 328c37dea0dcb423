"""All pods of a gang or none, and who makes way for whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hami.domain.kubernetes.objects import Metadata, Pod, PodSpec, SchedulingGroup
from hami.policy.filter.gangs import GroupName, giving_way, group_of, needed, together


def a_pod(
    native: str | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> Pod:
    about = Metadata(
        namespace="team", labels=dict(labels or {}), annotations=dict(annotations or {})
    )
    group = None if native is None else SchedulingGroup(pod_group_name=native)
    return Pod(metadata=about, spec=PodSpec(scheduling_group=group))


COSCHEDULING = {"scheduling.x-k8s.io/pod-group": "c"}
VOLCANO = {"scheduling.k8s.io/group-name": "v"}


@pytest.mark.parametrize(
    ("pod", "group"),
    [
        pytest.param(a_pod(), None, id="none"),
        pytest.param(a_pod("g"), ("scheduling.k8s.io", "g"), id="Kubernetes' own"),
        pytest.param(a_pod(labels=COSCHEDULING), ("scheduling.x-k8s.io", "c"), id="scheduler-plugins'"),
        pytest.param(a_pod(annotations=VOLCANO), ("scheduling.volcano.sh", "v"), id="Volcano's"),
        pytest.param(a_pod("g", COSCHEDULING, VOLCANO), ("scheduling.k8s.io", "g"), id="all three"),
        pytest.param(a_pod("", {"scheduling.x-k8s.io/pod-group": ""}), None, id="empty names"),
    ],
)  # fmt: skip
def test_the_group_that_a_pod_names(pod: Pod, group: tuple[str, str] | None) -> None:
    expected = GroupName(group[0], "team", group[1]) if group else None
    assert group_of(pod) == expected


@pytest.mark.parametrize(
    ("least", "bound", "others", "waiting", "need"),
    [
        pytest.param(None, 0, 0, 3, 3, id="nobody says: all that wait"),
        pytest.param(None, 1, 0, 2, 0, id="nobody says, and one runs: it was let go"),
        pytest.param(None, 0, 1, 2, 2, id="nobody says, and one needs no device"),
        pytest.param(3, 0, 0, 5, 3, id="some may come later"),
        pytest.param(3, 2, 0, 5, 1, id="less those that run"),
        pytest.param(3, 0, 1, 5, 2, id="less those that need no device"),
        pytest.param(3, 5, 0, 2, 0, id="enough run"),
        pytest.param(5, 0, 0, 3, 3, id="no more than there are"),
    ],
)
def test_how_many_must_be_placed_together(
    least: int | None, bound: int, others: int, waiting: int, need: int
) -> None:
    assert needed(least, bound=bound, others=others, waiting=waiting) == need


@dataclass
class Bins:
    """Nodes with so much room each; members ask for their amount, and take the fullest node."""

    room: list[int]
    asks: Mapping[str, int]
    given: dict[str, int] = field(default_factory=dict)

    def place(self, member: str) -> bool:
        assert member not in self.given, "placed twice"
        fitting = [i for i, room in enumerate(self.room) if room >= self.asks[member]]
        if not fitting:
            return False
        node = min(fitting, key=lambda i: (self.room[i], i))
        self.given[member] = node
        self.room[node] -= self.asks[member]
        return True

    def take_back(self, member: str) -> None:
        self.room[self.given.pop(member)] += self.asks[member]


amounts = st.integers(1, 9)
rooms = st.lists(st.integers(0, 12), min_size=1, max_size=4)


@given(rooms, st.lists(amounts, min_size=1, max_size=6), st.data())
def test_as_many_as_are_needed_or_none_and_never_more_than_there_is(
    room: list[int], asked: list[int], data: st.DataObject
) -> None:
    asks = {f"m{number}": amount for number, amount in enumerate(asked)}
    members = sorted(asks, key=lambda name: -asks[name])
    first = data.draw(st.sampled_from(members))
    need = data.draw(st.integers(1, len(members)))
    bins = Bins(list(room), asks)
    placed = together(bins, members, first, need)
    if placed is None:
        assert (bins.given, bins.room) == ({}, room)
    else:
        assert first in placed
        assert len(placed) == need
        assert set(placed) == set(bins.given)
        assert all(left >= 0 for left in bins.room)


@given(st.integers(1, 12), st.integers(1, 6), st.integers(1, 3))
def test_equal_members_are_placed_whenever_they_fit(slots: int, members: int, size: int) -> None:
    asks = {f"m{number}": size for number in range(members)}
    bins = Bins([slots], asks)
    placed = together(bins, list(asks), "m0", members)
    assert (placed is not None) == (members * size <= slots)


def test_the_large_one_is_placed_first_whoever_asked() -> None:
    bins = Bins([4, 3], {"large": 4, "small": 3})
    assert together(bins, ["large", "small"], "small", 2) is not None


def test_who_asked_is_tried_first_where_the_large_ones_leave_it_nothing() -> None:
    bins = Bins([3], {"large": 2, "middle": 2, "small": 1})
    assert together(bins, ["large", "middle", "small"], "middle", 1) == ["middle"]


@dataclass
class Slots:
    """One device: holders and waiters take some of its slots."""

    free: int
    holds: Mapping[str, int]
    waiting: Sequence[int]
    log: list[str] = field(default_factory=list)

    def lift(self, holder: str) -> None:
        self.free += self.holds[holder]

    def others_take(self) -> bool:
        before = self.free
        for amount in self.waiting:
            if amount <= self.free:
                self.free -= amount
        return self.free < before

    def put_back(self, holder: str, *, as_it_was: bool) -> bool:
        if self.holds[holder] > self.free:
            assert not as_it_was, "what nobody took is there"
            return False
        self.free -= self.holds[holder]
        return True


def ways(free: int, holds: Sequence[int], waiting: Sequence[int]) -> list[str]:
    held = {f"h{number}": amount for number, amount in enumerate(holds)}
    return list(giving_way(Slots(free, held, waiting), list(held)))


@pytest.mark.parametrize(
    ("free", "holds", "waiting", "going"),
    [
        pytest.param(0, [2], [1], ["h0"], id="one is in the way"),
        pytest.param(0, [2], [], [], id="nobody waits"),
        pytest.param(0, [2], [3], [], id="nobody would fit"),
        pytest.param(1, [2], [1], [], id="there is room beside it"),
        pytest.param(0, [2, 2], [2], ["h0"], id="who has held longest"),
        pytest.param(0, [2, 2], [4], ["h0", "h1"], id="two together are in the way of a large one"),
    ],
)
def test_who_makes_way(
    free: int, holds: Sequence[int], waiting: Sequence[int], going: Sequence[str]
) -> None:
    assert ways(free, holds, waiting) == going


@given(
    st.integers(0, 4),
    st.lists(st.integers(1, 4), max_size=5),
    st.lists(st.integers(1, 8), max_size=5),
)
def test_somebody_goes_exactly_when_somebody_else_gains(
    free: int, holds: list[int], waiting: list[int]
) -> None:
    going = ways(free, holds, waiting)
    freed = free + sum(holds[int(name[1:])] for name in going)
    if going:
        assert any(amount <= freed for amount in waiting)
    elif holds:
        alone = Slots(free, {}, waiting)
        alone.others_take()
        whole = Slots(free + sum(holds), {}, waiting)
        whole.others_take()
        taken = free + sum(holds) - whole.free
        assert taken <= free, "what others could take was there without anybody going"
