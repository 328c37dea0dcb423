"""What a pod uses at its worst moment: per device, and per resource name against quota."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hami.domain.allocations import ContainerAllocation, ContainerKind
from hami.domain.devices import Usage
from hami.domain.requests import ContainerRequest
from hami.policy.filter.decision import Refused
from hami.policy.usage import asked_at_least, device_usage, quota_charge

from ..builders import (
    SHORT,
    Cluster,
    a_container,
    a_device,
    a_grant,
    a_node,
    a_pod,
    a_request,
    the_vendors,
)

INIT, SIDECAR, APP = ContainerKind.INIT, ContainerKind.SIDECAR, ContainerKind.APP
PROFILES = {key: vendor.profile for key, vendor in the_vendors().items()}


def running(kind: ContainerKind, *amounts: int | tuple[int, int] | tuple[int, int, str]):
    """One grant per amount: MiB, or (MiB, percent), or (MiB, percent, device)."""
    full = [(a, 0, "d0") if isinstance(a, int) else (*a, "d0")[:3] for a in amounts]
    grants = tuple(a_grant(device, memory=mib, cores=cores) for mib, cores, device in full)
    return ContainerAllocation(name="c", kind=kind, grants=grants)


def on(*containers: ContainerAllocation, device: str = "d0") -> tuple[int, int, int]:
    found = device_usage(containers).get(("ACME", device), Usage())
    return found.slots, found.memory_mib, found.cores


@pytest.mark.parametrize(
    ("containers", "expected"),
    [
        pytest.param([], (0, 0, 0), id="nothing"),
        pytest.param([running(APP, (100, 5))], (1, 100, 5), id="one app"),
        pytest.param([running(APP, 100), running(APP, 50)], (2, 150, 0), id="apps run together"),
        pytest.param([running(INIT, (20000, 10)), running(APP, (10000, 5))], (1, 20000, 10), id="the init container is the peak"),
        pytest.param([running(INIT, 100), running(INIT, 300), running(APP, 200)], (1, 300, 0), id="init containers run one after the other"),
        pytest.param([running(INIT, (900, 5)), running(APP, (100, 50))], (1, 900, 50), id="each dimension has its own peak"),
        pytest.param([running(SIDECAR, 100), running(APP, 100)], (2, 200, 0), id="fix: a sidecar runs beside the apps"),
        pytest.param([running(SIDECAR, 100), running(INIT, 500), running(APP, 100)], (2, 600, 0), id="fix: an init container runs beside the sidecars before it"),
        pytest.param([running(INIT, 500), running(SIDECAR, 100), running(APP, 100)], (2, 500, 0), id="and not beside those after it"),
        pytest.param([running(SIDECAR, 100), running(SIDECAR, 50)], (2, 150, 0), id="sidecars run together"),
        pytest.param([running(INIT, 100, 100), running(APP, 50)], (2, 200, 0), id="fix: two slices of one init container count as two"),
        pytest.param([running(INIT), running(APP)], (0, 0, 0), id="containers without devices"),
        pytest.param([running(INIT, (700, 0, "d1")), running(APP, 100)], (1, 100, 0), id="another device's peak is its own"),
    ],
)  # fmt: skip
def test_device_usage(containers, expected):
    assert on(*containers) == expected


def test_devices_of_one_id_and_two_vendors_are_two():
    grants = (a_grant("x", memory=1), a_grant("x", memory=2, vendor="BOLT"))
    container = ContainerAllocation(name="c", kind=APP, grants=grants)
    assert device_usage([container]) == {("ACME", "x"): Usage(1, 1, 0), ("BOLT", "x"): Usage(1, 2, 0)}  # fmt: skip


@pytest.mark.parametrize(
    ("containers", "expected"),
    [
        pytest.param([running(APP, 3000, 3000)], (2, 6000, 0), id="fix: two devices times their MiB"),
        pytest.param([running(INIT, (20000, 10)), running(APP, (10000, 5))], (1, 20000, 10), id="the init peak"),
        pytest.param([running(INIT, (700, 0, "d1")), running(APP, 100)], (1, 700, 0), id="fix: the peak over all devices, not per device"),
        pytest.param([running(INIT, 2100), running(APP, (100, 0, "d1"))], (1, 2100, 0), id="an init container on another device"),
        pytest.param([running(SIDECAR, 100), running(INIT, 500), running(APP, 200)], (2, 600, 0), id="sidecars count at both times"),
        pytest.param([], (0, 0, 0), id="nothing"),
    ],
)  # fmt: skip
def test_quota_charge(containers, expected):
    charge = quota_charge(containers, PROFILES)
    names = ("acme.com/gpu", "acme.com/mem", "acme.com/cores")
    assert tuple(charge.get(name, 0) for name in names) == expected
    assert set(charge) <= set(names)


def test_a_vendor_without_memory_is_charged_its_count_alone():
    grant = a_grant("w0", memory=8000, cores=100, vendor="WHOLE")
    container = ContainerAllocation(name="c", kind=APP, grants=(grant,))
    assert quota_charge([container], PROFILES) == {"whole.io/card": 1}


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        pytest.param(a_pod(gpu=2, mem=400), {"gpu": 2, "mem": 800}, id="times the count"),
        pytest.param(a_pod(gpu=2, mem=400, cores=30), {"gpu": 2, "mem": 800, "cores": 60}, id="cores times the count"),
        pytest.param(a_pod(gpu=1, mem=1, cores=250), {"gpu": 1, "mem": 1, "cores": 100}, id="cores are clamped to a device"),
        pytest.param(a_pod(gpu=1, pct=50), {"gpu": 1}, id="a percentage is not known yet"),
        pytest.param(a_pod(gpu=1), {"gpu": 1}, id="nor is a whole device"),
        pytest.param(a_pod(npu=2, npumem=3), {"npu": 2, "npumem": 1536, "npucores": 200}, id="after the vendor's factor, with its defaults"),
        pytest.param(a_pod("p", a_container(gpu=1, mem=500), init=[a_container(gpu=1, mem=800), a_container(gpu=1, mem=700)]), {"gpu": 1, "mem": 800}, id="the init peak"),
        pytest.param(a_pod("p", a_container(gpu=1, mem=500), init=[a_container(restart="Always", gpu=1, mem=300), a_container(gpu=1, mem=700)]), {"gpu": 2, "mem": 1000}, id="beside the sidecar"),
        pytest.param(a_pod(card=2), {"card": 2}, id="whole devices"),
    ],
)  # fmt: skip
def test_asked_at_least(pod, expected):
    request = Cluster().parse(pod)
    assert asked_at_least(request.containers, PROFILES) == {
        SHORT[k]: v for k, v in expected.items()
    }


def test_the_cores_of_a_whole_device_are_not_known_before_it_is():
    request = a_request(2, percent=100, cores=100, exclusive=True)
    container = ContainerRequest(container=a_container(), kind=APP, requests=(request,))
    assert asked_at_least([container], PROFILES) == {"acme.com/gpu": 2}


# Laws.

kinds = st.sampled_from(ContainerKind)
amounts = st.tuples(st.integers(0, 900), st.integers(0, 90), st.sampled_from(["d0", "d1", "d2"]))
allocated = st.lists(
    st.builds(lambda kind, grants: running(kind, *grants), kinds, st.lists(amounts, max_size=3)),
    max_size=6,
).map(lambda found: sorted(found, key=lambda c: c.kind is APP))


def moments(containers: list[ContainerAllocation]) -> list[list[ContainerAllocation]]:
    """Which containers run at the same time, moment after moment, told as Kubernetes starts them."""
    found = []
    for index, container in enumerate(containers):
        before = [c for c in containers[:index] if c.kind is SIDECAR]
        if container.kind is not APP:
            found.append([*before, container])
    found.append([c for c in containers if c.kind is not INIT])
    return found


def used_at(moment: list[ContainerAllocation], device: str) -> Usage:
    grants = [g for c in moment for g in c.grants if g.device_id == device]
    return sum((grant.usage for grant in grants), Usage())


@given(containers=allocated)
def test_a_device_is_used_as_in_the_worst_moment(containers):
    for device in ("d0", "d1", "d2"):
        worst = Usage()
        for moment in moments(containers):
            worst = worst.peak(used_at(moment, device))
        assert device_usage(containers).get(("ACME", device), Usage()) == worst


@given(containers=allocated)
def test_quota_is_charged_as_in_the_worst_moment(containers):
    charge = quota_charge(containers, PROFILES)
    for resource, amount in (
        ("acme.com/gpu", lambda g: 1),
        ("acme.com/mem", lambda g: g.memory_mib),
        ("acme.com/cores", lambda g: g.cores),
    ):
        sums = [sum(amount(g) for c in m for g in c.grants) for m in moments(containers)]
        assert charge.get(resource, 0) == max(sums, default=0)


@given(containers=allocated)
def test_the_charge_never_grows_when_the_init_containers_have_ended(containers):
    rest = [c for c in containers if c.kind is not INIT]
    before, after = quota_charge(containers, PROFILES), quota_charge(rest, PROFILES)
    assert all(after[resource] <= before[resource] for resource in after)


asks = st.fixed_dictionaries(
    {},
    optional={
        "gpu": st.integers(0, 3),
        "mem": st.integers(0, 5000),
        "pct": st.integers(0, 120),
        "cores": st.integers(0, 150),
        "npu": st.integers(0, 2),
        "npumem": st.integers(0, 8),
        "npucores": st.integers(0, 60),
        "card": st.integers(0, 2),
    },
)
CLUSTER = Cluster(
    a_node(
        "n1",
        *(a_device(f"d{i}", index=i) for i in range(4)),
        *(a_device(f"b{i}", index=i, vendor="BOLT") for i in range(3)),
        *(a_device(f"w{i}", index=i, vendor="WHOLE", cores=50) for i in range(3)),
    )
)


@given(apps=st.lists(asks, min_size=1, max_size=2), inits=st.lists(asks, max_size=2))
def test_no_placement_is_charged_less_than_admission_foresaw(apps, inits):
    pod = a_pod("p", *(a_container(**ask) for ask in apps), init=[a_container(**a) for a in inits])
    outcome = CLUSTER.try_pod(pod)
    if not isinstance(outcome, Refused):
        charge = quota_charge(outcome.allocation.containers, PROFILES)
        least = asked_at_least(CLUSTER.parse(pod).containers, PROFILES)
        assert all(charge.get(resource, 0) >= amount for resource, amount in least.items())
