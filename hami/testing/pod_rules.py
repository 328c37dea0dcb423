"""Checks of what is written on a pod, and of what is read back from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime

import msgspec
from hypothesis import given

from hami.domain.allocations import ContainerAllocation, ContainerKind, Corrupt, PodAllocation
from hami.domain.devices import Grant
from hami.domain.extra import Extra
from hami.domain.kubernetes.objects import Container, Pod
from hami.domain.profile import VendorProfile
from hami.domain.units import MemoryMiB
from hami.policy.profile.profile_rules import annotation_key_problem
from hami.testing.asks import Limits, pods
from hami.testing.fit_rules import Bench
from hami.testing.neighbour import NEIGHBOUR, Neighbour
from hami.testing.subject import LAW, Subject, container_asking, pod_of, registry
from hami.vendors.registry import Vendors
from hami.wire.allocation import allocation_keys, decode_allocation, encode_allocation

_NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def allocated(subject: Subject, asks: list[Limits]) -> tuple[Pod, PodAllocation]:
    """A pod with an app container per entry of ``asks``, and what it was given."""
    bench = Bench(subject)
    containers: list[Container] = []
    given_: list[ContainerAllocation] = []
    for number, ask in enumerate(asks):
        placement = bench.place(ask)
        name = f"c{number}"
        containers.append(container_asking(ask if placement else {}, name))
        grants = placement.grants if placement else ()
        given_.append(ContainerAllocation(name=name, kind=ContainerKind.APP, grants=grants))
    allocation = PodAllocation(node=subject.node.name, containers=tuple(given_))
    return pod_of(*containers), allocation


def vendor_annotations(subject: Subject, pod: Pod, allocation: PodAllocation) -> Mapping[str, str]:
    """What the vendor writes beside the core's two lists."""
    written = subject.vendor.allocation_annotations(allocation, subject.devices, pod, _NOW)
    assert written is not None, "hami_allocation_annotations failed"
    return written


def bound(subject: Subject, pod: Pod, annotations: Mapping[str, str]) -> Pod:
    metadata = msgspec.structs.replace(pod.metadata, annotations=dict(annotations))
    spec = msgspec.structs.replace(pod.spec, node_name=subject.node.name)
    return msgspec.structs.replace(pod, metadata=metadata, spec=spec)


def read_back(subject: Subject, pod: Pod) -> PodAllocation | Corrupt:
    """The pod's allocation as a scheduler reads it after its restart."""
    return subject.vendor.restore(pod, decoded(pod, subject.node.name, subject.vendors))


def decoded(pod: Pod, node: str, vendors: Vendors) -> PodAllocation:
    """What the core reads of the pod's annotations, before its vendors complete it."""
    asking = {
        key: [vendors[key].asks(container, pod) for container, _ in pod.each_container()]
        for key in vendors
    }
    return decode_allocation(pod, node, vendors.profiles, asking).allocation


def core_keys(profiles: Iterable[VendorProfile]) -> frozenset[str]:
    """The pod annotations that the core writes, for whichever vendor."""
    return allocation_keys(
        replace(profile, pod_annotations=replace(profile.pod_annotations, also_written=()))
        for profile in profiles
    )


def extra_problem(extra: Extra) -> str:
    """Say why a vendor's value would be lost when it is printed or signed; empty if it is not."""
    for key, value in extra.items():
        try:
            text = msgspec.json.encode(key.encode(value))
            back = key.decode(msgspec.json.decode(text))
        except (TypeError, ValueError) as error:
            return f"extra {key.name!r} does not pass through JSON: {error}"
        if back != value:
            return f"extra {key.name!r} is {value!r}, and after JSON {back!r}"
    return ""


class PodRules:
    """What a pod was given can be read from the pod alone."""

    def test_an_allocation_is_restored(self, subject: Subject) -> None:
        """``hami_restore`` gives back the very grants that were written: after a restart the
        scheduler knows nothing else."""

        @LAW
        @given(pods(subject.profile, subject.devices, at_most=3))
        def law(asks: list[Limits]) -> None:
            pod, allocation = allocated(subject, asks)
            annotations = {
                **encode_allocation(allocation, subject.vendors.profiles),
                **vendor_annotations(subject, pod, allocation),
            }
            back = read_back(subject, bound(subject, pod, annotations))
            assert back == allocation, f"{allocation} was written, {back} read back"

        law()

    def test_written_annotations_are_the_vendors_own(self, subject: Subject) -> None:
        """A vendor writes valid keys that its profile names, and none of the core's."""
        asks: list[Limits] = [{subject.profile.resources.count: "1"}]
        pod, allocation = allocated(subject, asks)
        own = subject.profile.pod_annotations.also_written
        core = core_keys(subject.vendors.profiles)
        for key, text in vendor_annotations(subject, pod, allocation).items():
            problem = annotation_key_problem(key)
            assert not problem, f"hami_allocation_annotations writes {key!r}: {problem}"
            assert key not in core, f"hami_allocation_annotations writes {key}, which the core does"
            assert key in own, (
                f"hami_allocation_annotations writes {key}; name it in "
                f"pod_annotations.also_written, so that a pod's author cannot set it"
            )
            assert isinstance(text, str), f"hami_allocation_annotations writes {text!r} as {key}"

    def test_restoring_survives_spoilt_annotations(self, subject: Subject) -> None:
        """A tenant's edit, or a missing annotation, never lowers what a pod is charged."""
        asks: list[Limits] = [{subject.profile.resources.count: "1"}]
        pod, allocation = allocated(subject, asks)
        core = encode_allocation(allocation, subject.vendors.profiles)
        own = vendor_annotations(subject, pod, allocation)
        spoilt: list[dict[str, str]] = [{}]
        spoilt += [{**own, key: text} for key in own for text in ("", "{", "[]", "null", "💥")]
        for written in spoilt:
            tampered = bound(subject, pod, {**core, **written})
            # The boundary refuses an answer that takes less, or another vendor's grants.
            read_back(subject, tampered)

    def test_restoring_leaves_other_vendors_alone(self, subject: Subject) -> None:
        """Grants of another vendor in the same pod pass ``hami_restore`` untouched."""
        vendors = registry({"plugin": subject.plugin, "neighbour": Neighbour()}, subject.config)
        _, own = allocated(subject, [{subject.profile.resources.count: "1"}])
        foreign = Grant(
            device_id=subject.devices[0].id,  # ids are unique per vendor only
            vendor=NEIGHBOUR.key,
            memory_mib=MemoryMiB(1),
        )
        other = ContainerAllocation(name="other", kind=ContainerKind.APP, grants=(foreign,))
        mixed = PodAllocation(node=own.node, containers=(other, *own.containers))
        pod = pod_of(*(Container(name=container.name) for container in mixed.containers))
        annotations = {
            **encode_allocation(mixed, vendors.profiles),
            **vendor_annotations(subject, pod, mixed),
        }
        written = bound(subject, pod, annotations)
        read = decoded(written, mixed.node, vendors)
        back = vendors[subject.profile.key].restore(written, read)
        assert back == mixed, f"{mixed} was written, {back} read back"

    def test_extras_pass_through_json(self, subject: Subject) -> None:
        """Whatever rides in ``extra`` can be printed, signed, and read again."""
        for device in subject.devices:
            problem = extra_problem(device.extra)
            assert not problem, f"device {device.id}: {problem}"

        @LAW
        @given(pods(subject.profile, subject.devices, at_most=4))
        def law(asks: list[Limits]) -> None:
            _, allocation = allocated(subject, asks)
            for grant in allocation.grants:
                problem = extra_problem(grant.extra)
                assert not problem, f"grant of {grant.device_id}: {problem}"

        law()
