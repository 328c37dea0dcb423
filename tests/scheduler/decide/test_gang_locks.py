"""Gangs on nodes whose agent serves one pod at a time: a gang does not wait for itself, and goes
before nobody else.
"""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest

from hami.domain.kubernetes.objects import (
    Metadata,
    Pod,
    PodGroup,
    PodGroupSpec,
    SchedulingGroup,
)
from hami.policy.filter.gangs import SCHEDULER_PLUGINS
from hami.scheduler.bookings.bookings import LOCK_PROMISED
from hami.scheduler.bookings.reservations import Phase
from hami.scheduler.decide.locks import LockSettings, NodeLocks

from ..builders import a_node, a_pod
from .gang_world import Gangs

LOCK = "hami.io/mutex.lock"


def native(pod: Pod, group: str = "g") -> Pod:
    spec = msgspec.structs.replace(pod.spec, scheduling_group=SchedulingGroup(pod_group_name=group))
    return msgspec.structs.replace(pod, spec=spec)


def labelled(pod: Pod, group: str = "g") -> Pod:
    about = {"scheduling.x-k8s.io/pod-group": group}
    metadata = msgspec.structs.replace(pod.metadata, labels=about)
    return msgspec.structs.replace(pod, metadata=metadata)


def annotated(pod: Pod, group: str = "g") -> Pod:
    about = {"scheduling.k8s.io/group-name": group}
    metadata = msgspec.structs.replace(pod.metadata, annotations=about)
    return msgspec.structs.replace(pod, metadata=metadata)


MARKS = [
    pytest.param(native, id="Kubernetes' own"),
    pytest.param(labelled, id="scheduler-plugins'"),
    pytest.param(annotated, id="Volcano's"),
]
in_every_way = pytest.mark.parametrize("mark", MARKS)


class Locked(Gangs):
    """Nodes whose lock a pod must have, as a new node of this profile says."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        self.cluster.locked = True
        self.locks = NodeLocks(self.state, None, LockSettings)  # type: ignore[arg-type]
        for name in names or ("n1",):
            self.show(name)

    def show(self, name: str, holder: Pod | None = None) -> None:
        """The node, and who holds its lock there."""
        at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        lock = {LOCK: f"{at},{holder.namespace},{holder.name}"} if holder else {}
        self.state.node_changed(a_node(name, memory=9000, **lock))

    def looks_again(self) -> None:
        """As every second: what has run out by time alone is said to who waits."""
        self.locks._look_again()

    def asked(self, *pods: Pod) -> list[str]:
        return [self.filter(pod) for pod in pods]

    def group(self, mark, size: int = 3, name: str = "g", **asks) -> list[Pod]:
        asks = {"mem": 1000, **asks}
        pods = [mark(a_pod(f"{name}{number}", **asks), name) for number in range(size)]
        self.sees(*pods)
        return pods

    def single(self, name: str = "single", **asks) -> Pod:
        self.sees(pod := a_pod(name, mem=100, **asks))
        return pod


@in_every_way
class TestItsOwn:
    def test_promises_keep_none_of_it_out(self, mark) -> None:
        world = Locked()
        gang = world.group(mark)
        assert world.asked(*gang, *gang) == ["n1"] * 6

    def test_promises_keep_out_none_that_comes_later(self, mark) -> None:
        world = Locked()
        assert world.asked(*world.group(mark)) == ["n1"] * 3
        world.sees(late := mark(a_pod("late", mem=100)))
        assert world.filter(late) == "n1"

    def test_lock_keeps_none_of_it_out(self, mark) -> None:
        """Nor does a bind that is on its way to it."""
        world = Locked()
        first, *others = gang = world.group(mark)
        world.asked(*gang)
        world.state.reservations[first.uid].phase = Phase.BINDING
        world.locks._book.taken("n1", LOCK, first.uid, "2")
        assert world.asked(*others) == ["n1", "n1"]
        world.bind(first)
        world.show("n1", first)
        assert world.asked(*others) == ["n1", "n1"]

    def test_but_a_node_that_is_free_is_better(self, mark) -> None:
        world = Locked("n1", "n2")
        (first,) = world.group(mark, 1, mem=8000)
        there = world.filter(first)
        world.sees(second := mark(a_pod("second", mem=500)))
        assert {there, world.filter(second)} == {"n1", "n2"}


@in_every_way
class TestOthers:
    """Whoever is no member waits for the lock, and members wait for whoever is none."""

    def test_promises_keep_it_out(self, mark) -> None:
        world = Locked()
        assert world.filter(world.single()) == "n1"
        gang = world.group(mark)
        assert world.asked(*gang) == [""] * 3
        assert "NodeLocked" in world.said
        assert world.held == {"single"}
        world.looks_again()
        world.passes(LOCK_PROMISED + 1)
        world.looks_again()
        assert world.asked(*gang) == ["n1"] * 3

    def test_lock_keeps_it_out(self, mark) -> None:
        world = Locked()
        world.filter(single := world.single())
        world.bind(single)
        world.show("n1", single)
        gang = world.group(mark)
        assert world.asked(*gang) == [""] * 3
        world.show("n1")
        assert world.asked(*gang) == ["n1"] * 3

    def test_are_kept_out_by_it(self, mark) -> None:
        world = Locked()
        world.asked(*world.group(mark))
        assert world.filter(world.single()) == ""
        assert "NodeLocked" in world.said

    def test_another_gang_is_one(self, mark) -> None:
        world = Locked()
        world.asked(*world.group(mark))
        assert world.asked(*world.group(mark, name="h")) == [""] * 3
        assert world.held == {"g0", "g1", "g2"}

    def test_so_is_whoever_names_the_group_in_another_namespace(self, mark) -> None:
        world = Locked()
        world.asked(*world.group(mark))
        world.sees(stranger := mark(a_pod("stranger", mem=100, namespace="other")))
        assert world.filter(stranger) == ""

    def test_and_the_lock_of_one_who_is_called_like_a_member_there(self, mark) -> None:
        world = Locked()
        first, *_ = gang = world.group(mark)
        world.asked(*gang)
        world.show("n1", a_pod(first.name, namespace="other"))
        assert world.asked(*gang) == [""] * 3

    def test_and_whoever_names_another_kind_of_group(self, mark) -> None:
        world = Locked()
        world.asked(*world.group(mark))
        for other in {native, labelled, annotated} - {mark}:
            world.sees(stranger := other(a_pod(f"stranger-{other.__name__}", mem=100)))
            assert world.filter(stranger) == ""

    def test_and_a_member_that_left(self, mark) -> None:
        world = Locked()
        *gang, gone = world.group(mark)
        world.asked(*gang)
        world.sees(a_pod(gone.name, mem=100))
        assert world.filter(gone) == ""


def test_a_group_of_which_each_pod_may_run_alone_is_no_gang() -> None:
    world = Locked()
    about = Metadata(name="g", namespace="default")
    group = PodGroup(metadata=about, spec=PodGroupSpec(min_member=1))
    world.state.groups.group_changed(SCHEDULER_PLUGINS, group)
    assert world.asked(*world.group(labelled, 2)) == ["n1", ""]
