"""Who is next by HAMi's lists: every form that anybody writes, and those nobody should."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hami.domain.kubernetes.objects import Container, Metadata, PodSpec, Resources
from hami.domain.profile import NodeAnnotations, PodAnnotations, ResourceNames, VendorProfile
from hami.domain.units import VendorKey
from hami.hookspecs import HAMI_API, hookimpl
from hami.kube.node_pod import NodePod, NodePodStatus
from hami.node.compat.allocating_pod import (
    NextContainer,
    NothingWaits,
    allocating,
    has_waiting,
    lock_key,
    taken_off,
    waiting_container,
)
from hami.node.compat.lock_allocate import chosen_replicas
from hami.vendors.boundary import Vendor
from hami.vendors.registry import Vendors
from hami.wire import keys
from hami.wire.codecs import decode_pod_devices

TO_ALLOCATE, ALLOCATED = "acme.com/to-allocate", "acme.com/allocated"


def a_profile(lock: str = "mutex") -> VendorProfile:
    return VendorProfile(
        key=VendorKey("ACME"),
        resources=ResourceNames(count="acme.com/gpu"),
        node_annotations=NodeAnnotations(register="acme.com/r", lock="acme.com/own.lock"),
        pod_annotations=PodAnnotations(to_allocate=TO_ALLOCATE, allocated=ALLOCATED),
        lock=lock,
    )


class Acme:
    HAMI_API = HAMI_API

    @hookimpl
    def hami_vendors(self):
        return [a_profile()]


def an_acme() -> Vendor:
    return Vendors.of({"acme": Acme()})[VendorKey("ACME")]


def a_pod(
    text: str | None, *, init: int = 0, apps: int = 2, idle: str = "", allocated: str | None = None, name: str = "p", phase: str = "Pending", **annotations: str
) -> NodePod:  # fmt: skip
    written = {key.replace("_", "-"): value for key, value in annotations.items()}
    mine = {f"hami.io/{key}": value for key, value in written.items()}
    if text is not None:
        mine[TO_ALLOCATE] = text
    if allocated is not None:
        mine[ALLOCATED] = allocated
    wants = Resources(limits={"acme.com/gpu": "1"})
    nothing = Resources()
    spec = PodSpec(
        containers=[
            Container(name=f"app{n}", resources=nothing if f"app{n}" in idle else wants)
            for n in range(apps)
        ],
        init_containers=[
            Container(name=f"init{n}", resources=nothing if f"init{n}" in idle else wants)
            for n in range(init)
        ]
        or None,
    )
    metadata = Metadata(name=name, namespace="ns", annotations=mine)
    return NodePod(metadata=metadata, spec=spec, status=NodePodStatus(phase=phase))


A, B = "A,ACME,100,0:", "B,ACME,200,10:"


@pytest.mark.parametrize(
    ("text", "init", "container", "slot", "devices"),
    [
        pytest.param(f"{A};{B};", 0, "app0", 0, ["A"], id="the first of two"),
        pytest.param(f";{B};", 0, "app1", 1, ["B"], id="the second, once the first is served"),
        pytest.param(f";{B};;", 0, "app1", 1, ["B"], id="after HAMi's plugin let the text grow"),
        pytest.param(f";{A}{B};;;;", 0, "app1", 1, ["A", "B"], id="two devices"),
        pytest.param(f"{A};;{B};", 1, "init0", 0, ["A"], id="init containers come first"),
        pytest.param(f";;{B};", 1, "app1", 2, ["B"], id="slots count init containers too"),
        pytest.param(A, 0, "app0", 0, ["A"], id="without an end"),
        pytest.param("A,a model,100,0:;", 0, "app0", 0, ["A"], id="a type that is a model"),
        pytest.param("A,ACME,100,0,more:;", 0, "app0", 0, ["A"], id="more fields than we know"),
    ],
)  # fmt: skip
def test_next(text, init, container, slot, devices):
    waiting = waiting_container(a_pod(text, init=init), an_acme())
    assert isinstance(waiting, NextContainer)
    assert (waiting.container, waiting.slot) == (container, slot)
    assert [grant.device_id for grant in waiting.grants] == devices


@pytest.mark.parametrize(
    ("text", "left", "init", "idle", "container"),
    [
        pytest.param(f"{A};", f"{A};", 1, "init0 app1", "app0", id="behind an init container"),
        pytest.param(f"{A};", f"{A};", 0, "app0", "app1", id="behind an app"),
        pytest.param(f"{A};{B};", f"{A};{B};", 1, "app0", "init0", id="on both sides, the first"),
        pytest.param(f"{A};{B};", f";{B};;", 1, "app0", "app1", id="on both sides, the second"),
        pytest.param(f"{A};{B};;", f";{B};;;", 1, "app0", "app1", id="the second, ends added"),
    ],
)  # fmt: skip
def test_hami_bug_served_around_slots_that_it_left_out(text, left, init, idle, container):
    """``left`` is what its plugin would have made of the text, once the first was served."""
    pod = a_pod(left, allocated=text, init=init, idle=idle)
    waiting = waiting_container(pod, an_acme())
    assert isinstance(waiting, NextContainer)
    assert waiting.container == container


@pytest.mark.parametrize(
    ("text", "kind", "says"),
    [
        pytest.param(None, NothingWaits, "device request not found", id="no list"),
        pytest.param("", NothingWaits, "no pending device allocation found", id="an empty list"),
        pytest.param(";;", NothingWaits, "no pending device allocation found", id="all served"),
        pytest.param(f";;{A};", str, "container index 2 out of range (init=0, regular=2)", id="a slot too many"),
        pytest.param("A,ACME,100:;", str, TO_ALLOCATE, id="a field too few"),
        pytest.param("A,ACME,many,0:;", str, "many", id="memory that is no number"),
    ],
)  # fmt: skip
def test_none(text, kind, says):
    waiting = waiting_container(a_pod(text), an_acme())
    assert isinstance(waiting, kind)
    assert says in str(waiting)


@pytest.mark.parametrize(
    ("text", "slot", "left"),
    [
        pytest.param(f"{A};{B};", 0, f";{B};", id="the first"),
        pytest.param(f";{B};", 1, ";;", id="the last"),
        pytest.param(f";{B};;;", 1, ";;;;", id="what HAMi's plugin let grow stays"),
        pytest.param(f"{A};M,a model,1,2,x:;", 0, ";M,a model,1,2,x:;", id="others stay as they were written"),
        pytest.param(A, 0, "", id="without an end"),
    ],
)  # fmt: skip
def test_taken_off(text, slot, left):
    assert taken_off(text, slot) == left


slots = st.lists(st.lists(st.sampled_from([A, B]), max_size=3).map("".join), max_size=6)


@given(slots, st.booleans())
def test_each_container_is_served_once_and_in_order(containers, grown):
    """Whoever takes off in between: our text, or HAMi's that grows."""
    pod = a_pod("".join(f"{text};" for text in containers), apps=len(containers))
    served = []
    while has_waiting(pod, a_profile()):
        waiting = waiting_container(pod, an_acme())
        assert isinstance(waiting, NextContainer)
        served.append(waiting.slot)
        text = taken_off(pod.annotations[TO_ALLOCATE], waiting.slot) + ";" * grown
        pod = a_pod(text, apps=len(containers))
        assert decode_pod_devices(text, annotation="", vendor="ACME")[waiting.slot] == ()
    assert served == [slot for slot, text in enumerate(containers) if text]
    assert isinstance(waiting_container(pod, an_acme()), NothingWaits)


BOUND = {"bind_time": "100", "bind_phase": "allocating", "vgpu_node": "n1"}


@pytest.mark.parametrize(
    ("changed", "there"),
    [
        pytest.param({}, True, id="allocating"),
        pytest.param({"bind_phase": "success"}, True, id="of which another vendor is done"),
        pytest.param({"bind_phase": "failed"}, False, id="failed"),
        pytest.param({"vgpu_node": "n2"}, False, id="decided for another node"),
        pytest.param({"phase": "Running"}, False, id="that runs"),
        pytest.param({"phase": "Failed"}, False, id="that has ended"),
    ],
)
def test_a_pod_between_bind_and_start(changed, there):
    pod = a_pod(A, **(BOUND | changed))
    assert bool(allocating([pod], "n1")) is there


def test_a_pod_that_hami_never_bound_is_none():
    assert allocating([a_pod(A), a_pod(A, bind_phase="allocating")], "n1") == []


def test_the_one_bound_first_is_first():
    pods = [
        a_pod(A, name=n, **(BOUND | {"bind_time": t}))
        for n, t in [("c", "9"), ("a", "100"), ("b", "9"), ("d", "x")]
    ]
    assert [pod.name for pod in allocating(pods, "n1")] == ["d", "b", "c", "a"]


@pytest.mark.parametrize(
    ("lock", "key"), [("mutex", keys.NODE_LOCK), ("private", "acme.com/own.lock"), ("none", "")]
)
def test_which_lock(lock, key):
    assert lock_key(a_profile(lock)) == key


# GetPreferredAllocation.

G1, G2 = "GPU-11111111-1111-1111-1111-111111111111", "GPU-22222222-2222-2222-2222-222222222222"


def of(device: str, *numbers: int) -> list[str]:
    return [f"{device}-{n}" for n in numbers]


@pytest.mark.parametrize(
    ("wanted", "available", "must", "size", "chosen"),
    [
        pytest.param([G2], of(G1, 0, 1) + of(G2, 3, 4), [], 1, of(G2, 3), id="the device that was granted"),
        pytest.param([G2, G1], of(G1, 0) + of(G2, 0), [], 2, of(G2, 0) + of(G1, 0), id="two devices"),
        pytest.param([G1, G1], of(G1, 5, 6, 7), [], 2, of(G1, 5, 6), id="one device twice"),
        pytest.param([G1], of(G1, 0, 1), of(G1, 1), 1, of(G1, 1), id="what must be covers it"),
        pytest.param([G1, G2], of(G1, 0) + of(G2, 0), of(G2, 0), 2, of(G2, 0) + of(G1, 0), id="what must be comes first"),
        pytest.param(["MIG-1"], ["MIG-1", "MIG-2"], [], 1, ["MIG-1"], id="a device that is its own replica"),
        pytest.param(["x"], ["x::0", "x::1"], [], 1, ["x::0"], id="NVIDIA's own replicas"),
    ],
)  # fmt: skip
def test_preferred(wanted, available, must, size, chosen):
    assert chosen_replicas(wanted, available, must, size, ()) == tuple(chosen)


@pytest.mark.parametrize(
    ("wanted", "available", "must", "size", "says"),
    [
        pytest.param([G1], of(G1, 0, 1), [], 2, "1 devices are annotated", id="fewer granted than asked for"),
        pytest.param([G1], of(G2, 0), [], 1, f"no available slice device found for annotated GPU {G1}", id="none left of it"),
        pytest.param([G1, G1], of(G1, 0), [], 2, "no available slice device", id="one left, two wanted"),
        pytest.param([G1], of(G1, 0), of(G2, 0), 1, "2 replicas would be needed", id="another one must be"),
    ],
)  # fmt: skip
def test_not_preferred(wanted, available, must, size, says):
    answer = chosen_replicas(wanted, available, must, size, ())
    assert isinstance(answer, str)
    assert says in answer
