"""The last look at a device: never more than it has, and no other arithmetic than the scheduler's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from hami.domain.allocations import ContainerAllocation, ContainerKind
from hami.domain.profile import ModeRules
from hami.domain.units import PodUid
from hami.node.slice.live_slices import Overfull, PodSlices, overfull
from hami.policy.usage import device_usage

from ..parts import ACME, a_device, a_grant

APP, INIT, SIDECAR = ContainerKind.APP, ContainerKind.INIT, ContainerKind.SIDECAR


USUAL: dict[str, ModeRules] = {}
PLACED = {"": ModeRules(placements=True)}


def a_pod(name: str, *containers) -> PodSlices:
    """``a_pod("p", [a_grant("A")], (INIT, [a_grant("A")]))``."""
    named = [one if isinstance(one, tuple) else (APP, one) for one in containers]
    return PodSlices(
        uid=PodUid(name),
        name=f"team/{name}",
        containers=tuple(
            ContainerAllocation(name=f"c{n}", kind=kind, grants=tuple(grants))
            for n, (kind, grants) in enumerate(named)
        ),
    )


DEVICES = {id: a_device(id, memory=1000, slots=3, cores=100) for id in "AB"}
HALF = [a_grant("A", 500, 50)]


@pytest.mark.parametrize(
    ("wanted", "others", "problem"),
    [
        (a_pod("p", HALF, HALF), [], ""),
        (a_pod("p", HALF, HALF, HALF), [], "has 1000 MiB of memory, 0 are in use, 1500 more"),
        (a_pod("p", (INIT, HALF), (INIT, HALF), HALF, HALF), [], ""),
        (a_pod("p", (SIDECAR, HALF), (INIT, HALF), HALF), [], ""),
        (a_pod("p", HALF), [a_pod("q", HALF)], ""),
        (a_pod("p", HALF), [a_pod("q", HALF, HALF)], "has 1000 MiB of memory, 1000 are in use"),
        (a_pod("p", HALF), [a_pod("q", [a_grant("A", 1, 51)])], "has 100 % of cores, 51 are in"),
        (a_pod("p", HALF), [a_pod("q", *[[a_grant("A", 1, 1)]] * 3)], "has 3 of slots, 3 are in"),
        (a_pod("p", [a_grant("B", 1000)]), [a_pod("q", HALF, HALF)], ""),
        (a_pod("p", [a_grant("C")]), [], "is not on this node any more"),
    ],
)  # fmt: skip
def test_a_look(wanted, others, problem):
    found = overfull(wanted, others, DEVICES, USUAL)
    assert (found.problem if found else "")[: len(problem) or 1] == problem


def test_placements_prove_their_own_room_of_cores():
    sevenths = [a_pod(f"q{n}", [a_grant("A", 1, 45)]) for n in range(2)]
    assert overfull(a_pod("p", [a_grant("A", 1, 45)]), sevenths, DEVICES, PLACED) is None


def test_whoever_holds_the_device_is_named():
    held = [a_pod("q", HALF), a_pod("r", HALF), a_pod("s", [a_grant("B")])]
    found = overfull(a_pod("p", HALF), held, DEVICES, USUAL)
    assert found == Overfull(
        device="A",
        problem="has 1000 MiB of memory, 1000 are in use, 500 more are granted",
        pods={"q": "team/q", "r": "team/r"},
    )


grants = st.builds(
    a_grant,
    device=st.sampled_from("AB"),
    memory=st.integers(0, 1200),
    cores=st.integers(0, 120),
)
containers = st.tuples(st.sampled_from([INIT, SIDECAR, APP]), st.lists(grants, max_size=2))
pods = st.lists(st.lists(containers, min_size=1, max_size=3), max_size=6)


@given(pods)
def test_whoever_is_let_in_never_makes_more_than_there_is(arriving):
    held: list[PodSlices] = []
    for number, made in enumerate(arriving):
        pod = a_pod(f"p{number}", *made)
        if overfull(pod, held, DEVICES, USUAL) is None:
            held.append(pod)
    for id, device in DEVICES.items():
        used = [usage[id] for pod in held if id in (usage := pod.usage())]
        assert sum(one.slots for one in used) <= device.slots
        assert sum(one.memory_mib for one in used) <= device.memory_mib
        assert sum(one.cores for one in used) <= device.cores


@given(st.lists(containers, min_size=1, max_size=4))
def test_an_empty_device_takes_what_the_scheduler_counts_and_no_more(made):
    pod = a_pod("p", *made)
    most = device_usage(pod.containers)
    exact = {
        id: replace(
            device,
            slots=most[ACME, id].slots,
            memory_mib=most[ACME, id].memory_mib,
            cores=most[ACME, id].cores,
        )
        for id, device in DEVICES.items()
        if (ACME, id) in most
    }
    assert overfull(pod, [], exact, USUAL) is None
    for id, device in exact.items():
        short = exact | {id: replace(device, slots=device.slots - 1)}
        assert isinstance(overfull(pod, [], short, USUAL), Overfull)
