"""A pod's whole allocation: both device lists of every vendor, read back whatever is broken."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hami.domain.allocations import ContainerAllocation, ContainerKind, PodAllocation
from hami.domain.devices import Grant
from hami.domain.kubernetes.objects import Container, Metadata, Pod, PodSpec
from hami.domain.profile import NodeAnnotations, PodAnnotations, ResourceNames, VendorProfile
from hami.wire.allocation import (
    allocation_keys,
    bind_annotations,
    decision_annotations,
    decode_allocation,
    encode_allocation,
)

NVIDIA = VendorProfile(
    key="NVIDIA",
    resources=ResourceNames(count="nvidia.com/gpu"),
    node_annotations=NodeAnnotations(register="hami.io/node-nvidia-register"),
    pod_annotations=PodAnnotations(
        to_allocate="hami.io/vgpu-devices-to-allocate", allocated="hami.io/vgpu-devices-allocated"
    ),
)
KUNLUN = VendorProfile(
    key="kunlun",
    resources=ResourceNames(count="kunlunxin.com/xpu"),
    node_annotations=NodeAnnotations(register=""),
    pod_annotations=PodAnnotations(allocated="hami.io/kunlun-allocated"),
)
BOTH = (KUNLUN, NVIDIA)
ALLOCATED = NVIDIA.pod_annotations.allocated
KUNLUN_ALLOCATED = KUNLUN.pod_annotations.allocated


def a_pod(*apps, init=(), sidecars=(), **annotations):
    """A pod of named containers; ``nvidia`` and ``kunlun`` are its allocated annotations."""
    keys = {"nvidia": ALLOCATED, "kunlun": KUNLUN_ALLOCATED}
    return Pod(
        metadata=Metadata(name="p", annotations={keys[k]: v for k, v in annotations.items()}),
        spec=PodSpec(
            init_containers=[
                *(Container(name=name) for name in init),
                *(Container(name=name, restart_policy="Always") for name in sidecars),
            ],
            containers=[Container(name=name) for name in apps],
        ),
    )


def on(device, vendor="NVIDIA", memory=1000, cores=30):
    return Grant(device_id=device, vendor=vendor, memory_mib=memory, cores=cores)


def given_to(**containers):
    """An allocation of app containers by name."""
    return PodAllocation(
        node="n1",
        containers=tuple(
            ContainerAllocation(name=name, kind=ContainerKind.APP, grants=tuple(grants))
            for name, grants in containers.items()
        ),
    )


def decoded_of(pod, *askers, profiles=BOTH):
    """As if of each vendor the containers of these names asked; all of them when none is named."""
    asking = [not askers or container.name in askers for container, _ in pod.each_container()]
    return decode_allocation(pod, "n1", profiles, {profile.key: asking for profile in profiles})


def ids(decoded):
    """What each container has, by name."""
    return {c.name: [g.device_id for g in c.grants] for c in decoded.allocation.containers}


@pytest.mark.parametrize(
    ("allocation", "annotations"),
    [
        pytest.param(given_to(a=[on("GPU-a")]),
                     {"hami.io/vgpu-devices-to-allocate": "GPU-a,NVIDIA,1000,30:;",
                      "hami.io/vgpu-devices-allocated": "GPU-a,NVIDIA,1000,30:;"},
                     id="both lists say the same"),
        pytest.param(given_to(a=[on("XPU-a", "kunlun")]),
                     {"hami.io/kunlun-allocated": "XPU-a,kunlun,1000,30:;"},
                     id="a vendor without a to-allocate key has one list"),
        pytest.param(given_to(a=[on("GPU-a"), on("XPU-a", "kunlun")], b=[on("GPU-b", cores=0)]),
                     {"hami.io/vgpu-devices-to-allocate":
                          "GPU-a,NVIDIA,1000,30:;GPU-b,NVIDIA,1000,0:;",
                      "hami.io/vgpu-devices-allocated":
                          "GPU-a,NVIDIA,1000,30:;GPU-b,NVIDIA,1000,0:;",
                      "hami.io/kunlun-allocated": "XPU-a,kunlun,1000,30:;;"},
                     id="two vendors in one pod"),
        pytest.param(given_to(a=[], b=[]), {}, id="no device, no annotation"),
    ],
)  # fmt: skip
def test_writes(allocation, annotations):
    assert encode_allocation(allocation, BOTH) == annotations


def test_hami_bug_fixed_every_container_has_a_slot_for_every_vendor():
    """HAMi pads by device type, so a vendor whose type is the model gets misaligned lists."""
    allocation = given_to(idle=[], a=[on("GPU-a")], between=[], b=[on("GPU-b")], last=[])
    text = encode_allocation(allocation, BOTH)[ALLOCATED]
    assert text == ";GPU-a,NVIDIA,1000,30:;;GPU-b,NVIDIA,1000,30:;;"


def test_refuses_to_write_a_vendor_without_a_profile():
    with pytest.raises(ValueError, match=r"vendor kunlun, which is none of \['NVIDIA'\]"):
        encode_allocation(given_to(a=[on("XPU-a", "kunlun")]), [NVIDIA])


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        pytest.param(a_pod("a", nvidia="GPU-a,NVIDIA,1,1:;"), {"a": ["GPU-a"]}, id="one container"),
        pytest.param(a_pod("a", nvidia="GPU-a,NVIDIA,1,1:;;;;"), {"a": ["GPU-a"]},
                     id="trailing empty slots are nothing"),
        pytest.param(a_pod("a", "b", nvidia="GPU-a,NVIDIA,1,1:"), {"a": ["GPU-a"], "b": []},
                     id="fewer slots than containers"),
        pytest.param(a_pod("a", init=["i"], nvidia=";GPU-a,NVIDIA,1,1:;"),
                     {"i": [], "a": ["GPU-a"]}, id="init containers come first"),
        pytest.param(a_pod("a", nvidia="GPU-a,NVIDIA,1,1:;", kunlun="XPU-a,kunlun,1,1:;"),
                     {"a": ["GPU-a", "XPU-a"]}, id="vendors by key within a container"),
    ],
)  # fmt: skip
def test_reads_slots_in_the_order_of_the_containers(pod, expected):
    decoded = decoded_of(pod)
    assert ids(decoded) == expected
    assert (decoded.problems, decoded.unplaced) == ((), ())
    assert decoded.allocation.node == "n1"


def test_hami_bug_read_around_slots_that_it_left_out():
    """It writes none for a container without devices of the vendor (its issues 2899, 2900)."""
    pod = a_pod("a", "b", init=["i"], nvidia="GPU-a,NVIDIA,1,1:;")
    assert ids(decoded_of(pod, "a")) == {"i": [], "a": ["GPU-a"], "b": []}
    assert ids(decoded_of(pod, "b")) == {"i": [], "a": [], "b": ["GPU-a"]}
    assert decoded_of(pod, "b").problems == ()


def test_containers_keep_their_kinds():
    pod = a_pod("a", init=["i"], sidecars=["s"])
    containers = decoded_of(pod).allocation.containers
    assert [c.kind.value for c in containers] == ["init", "sidecar", "app"]


def test_hami_bug_fixed_one_vendors_malformed_text_hides_no_other_vendor():
    pod = a_pod("a", nvidia="GPU-a,NVIDIA:;", kunlun="XPU-a,kunlun,1,1:;")
    decoded = decoded_of(pod)
    assert ids(decoded) == {"a": ["XPU-a"]}
    assert [p.annotation for p in decoded.problems] == [ALLOCATED]
    assert decoded.unreadable == {"NVIDIA"}


def test_what_can_be_read_beside_a_fault_stays_charged():
    pod = a_pod("a", nvidia="GPU-a,NVIDIA,1,1:GPU-b,NVIDIA,x,1:GPU-c,NVIDIA,1,1:;")
    decoded = decoded_of(pod)
    assert ids(decoded) == {"a": ["GPU-a", "GPU-c"]}
    assert str(decoded.problems[0]).startswith(
        "annotation hami.io/vgpu-devices-allocated, container 0, device 1, memory: not a whole"
    )


def test_devices_of_a_container_that_is_not_there_are_in_use_all_the_same():
    pod = a_pod("a", nvidia="GPU-a,NVIDIA,1,1:;GPU-b,NVIDIA,2,3:;;GPU-c,NVIDIA,4,5:;")
    decoded = decoded_of(pod)
    assert ids(decoded) == {"a": ["GPU-a"]}
    assert decoded.unplaced == (on("GPU-b", memory=2, cores=3), on("GPU-c", memory=4, cores=5))
    assert str(decoded.problems[0]) == (
        "annotation hami.io/vgpu-devices-allocated: devices of more containers than the pod has, "
        "or than ask for them: 'GPU-b,NVIDIA,2,3:GPU-c,NVIDIA,4,5:;'"
    )
    assert decoded.unreadable == {"NVIDIA"}


@pytest.mark.parametrize(
    ("annotations", "missing"),
    [
        pytest.param({}, {"NVIDIA", "kunlun"}, id="no annotation"),
        pytest.param({"nvidia": "GPU-a,NVIDIA,1,1:;"}, {"kunlun"}, id="one of two"),
        pytest.param({"nvidia": ";;"}, {"NVIDIA", "kunlun"}, id="a list that names no device"),
        pytest.param({"nvidia": "GPU-a,NVIDIA:;"}, {"kunlun"}, id="unreadable is not missing"),
        pytest.param({"nvidia": ";;GPU-a,NVIDIA,1,1:"}, {"kunlun"}, id="nor is unplaced"),
    ],
)
def test_vendors_that_no_annotation_speaks_of_are_missing(annotations, missing):
    assert decoded_of(a_pod("a", **annotations)).missing == missing


def test_a_pod_without_annotations_has_nothing():
    pod = Pod(spec=PodSpec(containers=[Container(name="a")]))
    assert ids(decoded_of(pod)) == {"a": []}


def test_the_decision_names_node_and_time():
    now = datetime(2025, 9, 26, 18, 0, 0, 999_999, tzinfo=timezone(timedelta(hours=8)))
    assert decision_annotations("n1", now) == {
        "hami.io/vgpu-node": "n1",
        "hami.io/vgpu-time": "1758880800",
    }


def test_the_bind_begins_in_phase_allocating():
    assert bind_annotations(datetime(2025, 9, 26, 10, 0, 0, tzinfo=UTC)) == {
        "hami.io/bind-phase": "allocating",
        "hami.io/bind-time": "1758880800",
    }


def test_the_keys_that_only_the_scheduler_may_write():
    assert allocation_keys(BOTH) == {
        "hami.io/scheduler-term",
        "hami.io/vgpu-node",
        "hami.io/vgpu-time",
        "hami.io/bind-phase",
        "hami.io/bind-time",
        "hami.io/allocation-signature",
        "hami.io/allocated-gpucores-limit",
        "hami.io/resizes",
        "hami.io/vgpu-devices-to-allocate",
        "hami.io/vgpu-devices-allocated",
        "hami.io/kunlun-allocated",
    }


natural32 = st.integers(0, (1 << 31) - 1)
device_ids = st.text(st.characters(exclude_characters=",:;"), min_size=1, max_size=8)
one_containers_grants = st.lists(
    st.builds(on, device_ids, st.sampled_from(["NVIDIA", "kunlun"]), natural32, natural32),
    max_size=3,
).map(lambda grants: sorted(grants, key=lambda grant: grant.vendor))


@given(st.lists(one_containers_grants, min_size=1, max_size=4), st.integers(0, 4), st.data())
def test_what_is_written_reads_back_alike(grants, inits, data):
    names = [f"c{n}" for n in range(len(grants))]
    pod = a_pod(*names[inits:], init=names[:inits])
    allocation = PodAllocation(
        node="n1",
        containers=tuple(
            ContainerAllocation(name=c.name, kind=kind, grants=tuple(held))
            for (c, kind), held in zip(pod.each_container(), grants, strict=True)
        ),
    )
    annotated = Pod(
        metadata=Metadata(annotations=encode_allocation(allocation, BOTH)), spec=pod.spec
    )
    profiles = data.draw(st.permutations(BOTH))
    decoded = decoded_of(annotated, profiles=profiles)
    assert (decoded.allocation, decoded.problems, decoded.unplaced) == (allocation, (), ())
    assert decoded.missing == {"NVIDIA", "kunlun"} - {g.vendor for g in allocation.grants}


@given(st.text(), st.text())
def test_no_text_raises(nvidia, kunlun):
    decoded = decoded_of(a_pod("a", nvidia=nvidia, kunlun=kunlun))
    assert len(decoded.allocation.containers) == 1
