"""The pod annotation about MIG instances: as HAMi writes it, and what it may not say."""

import json
from datetime import UTC, datetime

import pytest
from hami_nvidia.schedule.mig_annotation import (
    MIG_ANNOTATION,
    MigAllocation,
    decode_mig_allocations,
    encode_mig_allocations,
)
from hami_nvidia.schedule.mig_placement import MigPlacement
from hypothesis import given
from hypothesis import strategies as st

from hami.domain.allocations import ContainerKind, Corrupt
from hami.domain.devices import Grant
from hami.domain.errors import Malformed
from hami.domain.extra import NO_EXTRA

from ..builders import A100, ONE, TWO, a_mig_grant, a_pod, an_allocation, the_vendor

INIT, SIDECAR, APP = ContainerKind.INIT, ContainerKind.SIDECAR, ContainerKind.APP
NOW = datetime(2026, 1, 2, tzinfo=UTC)

GOLDEN = (
    '[{"containerIndex":0,"deviceIndex":0,"gpuUUID":"GPU-a","profile":"1g.5gb",'
    '"placement":{"start":6,"size":1}}]'
)
RUNNING = GOLDEN.replace("}}]", '},"migUUID":"MIG-a","gpuInstanceID":7,"computeInstanceID":0}]')


def entry(**changes):
    base = {
        "containerIndex": 0,
        "deviceIndex": 0,
        "gpuUUID": "GPU-a",
        "profile": "1g.5gb",
        "placement": {"start": 6, "size": 1},
    }
    return {key: value for key, value in (base | changes).items() if value is not None}


def a_shared_grant(device="GPU-a", vendor="NVIDIA", memory=3000):
    return Grant(device_id=device, vendor=vendor, memory_mib=memory)


def annotated(allocation, pod=None):
    return the_vendor().allocation_annotations(allocation, [], pod or a_pod(), NOW)


def restored(text, allocation):
    return the_vendor().restore(a_pod({MIG_ANNOTATION: text}), allocation)


def as_decoded(allocation):
    """What the core's device list says of it: ids, memory and cores, no extras."""
    return an_allocation(
        *(
            (
                container.kind,
                [
                    Grant(
                        device_id=g.device_id,
                        vendor=g.vendor,
                        memory_mib=g.memory_mib,
                        cores=g.cores,
                    )
                    for g in container.grants
                ],
            )
            for container in allocation.containers
        )
    )


class TestCodec:
    def test_golden_reservation(self):
        (one,) = decode_mig_allocations(GOLDEN)
        assert (one.container_index, one.device_index, one.gpu_uuid) == (0, 0, "GPU-a")
        assert (one.profile, one.placement.start, one.placement.size) == ("1g.5gb", 6, 1)
        assert (one.mig_uuid, one.gpu_instance_id, one.compute_instance_id) == (None, None, None)
        assert encode_mig_allocations([one]) == GOLDEN

    def test_golden_running_instance_keeps_an_id_of_0(self):
        (one,) = decode_mig_allocations(RUNNING)
        assert (one.mig_uuid, one.gpu_instance_id, one.compute_instance_id) == ("MIG-a", 7, 0)
        assert encode_mig_allocations([one]) == RUNNING

    @pytest.mark.parametrize("text", ["", "null", "[]"])
    def test_no_allocations(self, text):
        assert decode_mig_allocations(text) == ()

    @pytest.mark.parametrize(
        ("entries", "problem"),
        [
            pytest.param([entry(containerIndex=-1)], "", id="negative container"),
            pytest.param([entry(deviceIndex=-1)], "", id="negative device"),
            pytest.param([entry(gpuUUID="")], "", id="empty uuid"),
            pytest.param([entry(profile="")], "", id="empty profile"),
            pytest.param([entry(placement={"start": 0, "size": 0})], "", id="size 0"),
            pytest.param([entry(placement=None)], "", id="no placement"),
            pytest.param([entry(gpuInstanceID=-1)], "", id="negative instance id"),
            pytest.param({}, "", id="no list"),
            pytest.param(
                [entry(migUUID="MIG-a")],
                "MIG allocation 0 has partial runtime identity",
                id="one part of the identity",
            ),
            pytest.param(
                [entry(), entry(deviceIndex=1, gpuInstanceID=0, computeInstanceID=0)],
                "MIG allocation 1 has partial runtime identity",
                id="two parts of the identity",
            ),
            pytest.param(
                [entry(deviceIndex=1), entry(deviceIndex=1)],
                "duplicate MIG allocation for container 0 device 1",
                id="the same slice twice",
            ),
        ],
    )
    def test_the_whole_annotation_is_malformed(self, entries, problem):
        answer = decode_mig_allocations(json.dumps(entries))
        assert isinstance(answer, Malformed)
        assert answer.annotation == MIG_ANNOTATION
        assert problem in answer.problem

    @given(
        text=st.text()
        | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps)
    )
    def test_law_no_text_raises(self, text):
        assert decode_mig_allocations(text) is not None

    @given(data=st.data())
    def test_law_entries_are_read_as_they_were_written(self, data):
        places = data.draw(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), unique=True))
        uint32 = st.integers(0, 2**32 - 1)
        entries = []
        for container, device in places:
            identity = {}
            if data.draw(st.booleans()):
                identity = {
                    "mig_uuid": data.draw(st.text()),
                    "gpu_instance_id": data.draw(uint32),
                    "compute_instance_id": data.draw(uint32),
                }
            entries.append(
                MigAllocation(
                    container_index=container,
                    device_index=device,
                    gpu_uuid=data.draw(st.text(min_size=1)),
                    profile=data.draw(st.text(min_size=1)),
                    placement=MigPlacement(
                        start=data.draw(uint32), size=data.draw(st.integers(1, 8))
                    ),
                    **identity,
                )
            )
        assert decode_mig_allocations(encode_mig_allocations(entries)) == tuple(entries)


class TestWriting:
    def test_one_slice(self):
        allocation = an_allocation((APP, [a_mig_grant("GPU-a", ONE, 6)]))
        assert annotated(allocation) == {MIG_ANNOTATION: GOLDEN}

    def test_containers_count_from_the_first_init_container_and_devices_within_the_vendor(self):
        allocation = an_allocation(
            (INIT, []),
            (
                APP,
                [
                    a_shared_grant(vendor="DCU"),
                    a_shared_grant("GPU-b"),
                    a_mig_grant("GPU-a", ONE, 6),
                ],
            ),
        )
        (one,) = json.loads(annotated(allocation)[MIG_ANNOTATION])
        assert (one["containerIndex"], one["deviceIndex"], one["gpuUUID"]) == (1, 1, "GPU-a")

    def test_shared_devices_need_no_annotation(self):
        assert annotated(an_allocation((APP, [a_shared_grant()]))) == {}

    def test_fixed_what_the_author_of_the_pod_wrote_there_is_overwritten(self):
        """HAMi leaves it, and later believes it."""
        pod = a_pod({MIG_ANNOTATION: GOLDEN})
        assert annotated(an_allocation((APP, [a_shared_grant()])), pod) == {MIG_ANNOTATION: "[]"}


class TestRestoring:
    def test_each_grant_gets_its_instance(self):
        allocation = an_allocation(
            (INIT, [a_mig_grant("GPU-a", TWO, 0)]),
            (APP, [a_mig_grant("GPU-a", ONE, 6), a_mig_grant("GPU-a", ONE, 5)]),
        )
        text = annotated(allocation)[MIG_ANNOTATION]
        assert restored(text, as_decoded(allocation)) == allocation

    def test_the_identity_on_the_node_is_no_part_of_the_grant(self):
        allocation = an_allocation((APP, [a_mig_grant("GPU-a", ONE, 6)]))
        assert restored(RUNNING, as_decoded(allocation)) == allocation

    def test_a_pod_without_the_annotation_stays_as_it_is(self):
        allocation = an_allocation((APP, [a_shared_grant()]))
        assert the_vendor().restore(a_pod(), allocation) == allocation

    @pytest.mark.parametrize("text", ["", "[]"])
    def test_an_empty_annotation_says_nothing(self, text):
        allocation = an_allocation((APP, [a_shared_grant()]))
        assert restored(text, allocation) == allocation

    def test_a_grant_on_a_shared_device_beside_a_mig_slice_has_no_instance(self):
        allocation = an_allocation((APP, [a_mig_grant("GPU-a", ONE, 6), a_shared_grant("GPU-b")]))
        assert restored(GOLDEN, as_decoded(allocation)).grants[1].extra == NO_EXTRA

    def test_hami_bug_counts_slots_of_which_it_left_some_out(self):
        """A container that asks for no device has none in its list, and is counted in neither."""
        allocation = an_allocation(
            (INIT, []), (APP, [a_mig_grant("GPU-a", ONE, 6)]), (APP, []),
            (APP, [a_shared_grant("GPU-a"), a_mig_grant("GPU-b", ONE, 2)]),
        )  # fmt: skip
        entries = [entry(), entry(containerIndex=1, deviceIndex=1, gpuUUID="GPU-b",
                                  placement={"start": 2, "size": 1})]  # fmt: skip
        pod = a_pod({
            MIG_ANNOTATION: json.dumps(entries),
            "hami.io/vgpu-devices-allocated":
                "GPU-a,NVIDIA,4864,14:;GPU-a,NVIDIA,3000,0:GPU-b,NVIDIA,4864,14:;",
        })  # fmt: skip
        assert the_vendor().restore(pod, as_decoded(allocation)) == allocation

    @pytest.mark.parametrize(
        ("entries", "word"),
        [
            pytest.param("[{", "truncated", id="no JSON"),
            pytest.param([entry(placement=None)], "placement", id="an incomplete entry"),
            pytest.param([entry(migUUID="M")], "partial runtime identity", id="half an identity"),
            pytest.param([entry(), entry()], "duplicate", id="a slice twice"),
            pytest.param(
                [entry(gpuUUID="GPU-x")], "is on GPU-a, not on GPU-x", id="another device"
            ),
            pytest.param([entry(deviceIndex=1)], "device 1 has no grant", id="a slice too many"),
            pytest.param(
                [entry(containerIndex=2)], "container 2 device 0 has no grant", id="a container"
            ),
        ],
    )
    def test_a_contradiction_puts_this_pods_devices_in_question_and_no_other(self, entries, word):
        text = entries if isinstance(entries, str) else json.dumps(entries)
        allocation = an_allocation(
            (APP, [a_shared_grant("GPU-a")]),
            (APP, [a_shared_grant("GPU-b"), a_shared_grant("DCU-a", "DCU")]),
        )
        answer = restored(text, allocation)
        assert isinstance(answer, Corrupt)
        assert answer.device_ids == ("GPU-a", "GPU-b")
        assert word in answer.problem
        assert MIG_ANNOTATION in answer.problem


@given(data=st.data())
def test_law_an_allocation_is_restored_as_it_was_written(data):
    def grants():
        for _ in range(data.draw(st.integers(0, 3))):
            kind = data.draw(st.sampled_from(["mig", "shared", "foreign"]))
            device = data.draw(st.sampled_from(["GPU-a", "GPU-b"]))
            if kind == "mig":
                profile = data.draw(st.sampled_from(A100))
                start = data.draw(st.sampled_from([p.start for p in profile.placements]))
                yield a_mig_grant(device, profile, start)
            else:
                yield a_shared_grant(device, "DCU" if kind == "foreign" else "NVIDIA")

    kinds = data.draw(st.lists(st.sampled_from([INIT, SIDECAR])))
    kinds += data.draw(st.lists(st.just(APP), min_size=1, max_size=3))
    allocation = an_allocation(*((kind, list(grants())) for kind in kinds))
    pod = a_pod(annotated(allocation))
    assert the_vendor().restore(pod, as_decoded(allocation)) == allocation
