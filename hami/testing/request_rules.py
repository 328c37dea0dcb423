"""Checks of what a vendor reads from a container: quantities, and their refusals."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from hami.domain.admission import Admission
from hami.domain.allocations import ContainerKind
from hami.domain.kubernetes.objects import Container
from hami.domain.profile import VendorProfile
from hami.domain.requests import DeviceRequest, Invalid
from hami.policy.pods.admission import AdmissionSettings, Admitted, admit
from hami.policy.quota import QuotaLedger
from hami.testing.neighbour import NEIGHBOUR
from hami.testing.subject import Subject, container_asking, pod_of

_NEVER = ("-1", "abc", "1.5", "1,5", "", "0x10", "1 Gi", "NaN")
_ABSURD = ("1E", "9" * 30)
"""More slices, or more memory, than any node has."""


def parsed(subject: Subject, limits: Mapping[str, str]) -> DeviceRequest | Invalid | None:
    container = container_asking(limits)
    return subject.vendor.parse_request(container, pod_of(container))


def asked(subject: Subject, limits: Mapping[str, str]) -> DeviceRequest:
    """The request for limits that every vendor must understand."""
    request = parsed(subject, limits)
    assert isinstance(request, DeviceRequest), f"{dict(limits)} gave {request!r}, not a request"
    return request


def bad_limits(profile: VendorProfile) -> list[tuple[str, dict[str, str]]]:
    """Limits that ask for something that cannot be, with the resource at fault."""
    names = profile.resources
    one = {names.count: "1"}
    cases = [(names.count, {names.count: text}) for text in (*_NEVER, *_ABSURD)]
    if not profile.whole_device:  # such a vendor reads the count alone
        amounts = (names.memory, names.memory_percentage, names.cores)
        cases += [(name, {**one, name: text}) for name in amounts if name for text in _NEVER]
        if names.memory:
            cases += [(names.memory, {**one, names.memory: text}) for text in _ABSURD]
    return cases


def foreign_limits(subject: Subject) -> list[dict[str, str]]:
    """Limits that are no business of this vendor: none, Kubernetes' own, other vendors'."""
    siblings = [p for p in subject.vendors.profiles if p.key != subject.profile.key]
    others = [dict.fromkeys(p.resources.all_names, "1") for p in (*siblings, NEIGHBOUR)]
    return [{}, {"cpu": "2"}, *others]


def changes(answer: Admission, container: Container) -> dict[str, object]:
    """What an admission would change in the container or its pod, by the admission's field."""
    found: dict[str, object] = {
        "limits": {k: v for k, v in answer.limits.items() if container.limits.get(k) != v},
        "requests": {k: v for k, v in answer.requests.items() if container.requests.get(k) != v},
        "pod_annotations": dict(answer.pod_annotations),
        "runtime_class": answer.runtime_class,
    }
    return {field: value for field, value in found.items() if value}


def _skip_without(subject: Subject, resource: str) -> None:
    if not getattr(subject.profile.resources, resource):
        pytest.skip(f"{subject.profile.key} has no resource for {resource}")
    if subject.profile.whole_device:
        pytest.skip(f"{subject.profile.key} gives whole devices only")


class RequestRules:
    """A request is understood as it was meant, or refused in words."""

    def test_asking_nothing_is_none(self, subject: Subject) -> None:
        """A container without this vendor's resources, or with a count of 0, asks nothing."""
        count = subject.profile.resources.count
        for limits in ({}, {"cpu": "2"}, {"other.example.com/device": "1"}, {count: "0"}):
            request = parsed(subject, limits)
            assert request is None, f"limits {limits} ask nothing of this vendor, got {request!r}"

    def test_what_other_vendors_count_is_none(self, subject: Subject) -> None:
        """``hami_parse_request`` answers None for a container that asks another vendor."""
        for limits in foreign_limits(subject):
            request = parsed(subject, limits)
            assert request is None, f"limits {limits} ask another vendor, got {request!r}"

    def test_a_count_asks_for_slices(self, subject: Subject) -> None:
        """The count is how many slices are asked for."""
        count = subject.profile.resources.count
        for text in ("1", "2"):
            request = asked(subject, {count: text})
            assert request.count == int(text), f"{count}={text} asks for {request.count} slices"

    def test_memory_is_read_in_its_unit(self, subject: Subject) -> None:
        """A decimal number counts the resource's unit; only ``Ki Mi Gi`` prove bytes."""
        _skip_without(subject, "memory")
        unit = subject.profile.memory_factor
        for text, least in (("1000", 1000 * unit), ("1k", 1000 * unit), ("1Gi", 1024)):
            memory = self._memory(subject, text)
            assert memory is not None, f"memory={text} was not read"
            assert memory >= least, f"memory={text} asks for {memory} MiB, less than {least}"
        plain, short = self._memory(subject, "1000"), self._memory(subject, "1k")
        assert plain == short, f"the API server writes 1000 as 1k, but {plain} is not {short} MiB"

    def test_a_percentage_stays_a_percentage(self, subject: Subject) -> None:
        """A share of memory is resolved on each device, not when it is read."""
        _skip_without(subject, "memory_percentage")
        names = subject.profile.resources
        request = asked(subject, {names.count: "1", names.memory_percentage: "50"})
        assert request.memory_percent == 50, f"50 percent was read as {request.memory_percent}"

    def test_cores_are_not_lowered(self, subject: Subject) -> None:
        """Compute is at least what was asked for; a vendor may round up."""
        _skip_without(subject, "cores")
        names = subject.profile.resources
        request = asked(subject, {names.count: "1", names.cores: "30"})
        assert request.cores >= 30, f"cores=30 asks for {request.cores} percent"

    def test_bad_quantities_are_invalid(self, subject: Subject) -> None:
        """What cannot be is refused: as None, the pod would run without a device."""
        for resource, limits in bad_limits(subject.profile):
            request = parsed(subject, limits)
            assert isinstance(request, Invalid), f"{limits} gave {request!r}, not Invalid"
            said = request.text
            assert resource in said, f"Invalid does not name the resource {resource}: {said}"
            assert "main" in said, f"Invalid does not name the container: {said}"

    def test_admission_survives_bad_quantities(self, subject: Subject) -> None:
        """Admission answers whatever the limits say; a pod's author cannot break it."""
        for _, limits in bad_limits(subject.profile):
            container = container_asking(limits)
            subject.vendor.admit(container, pod_of(container), ContainerKind.APP)

    def test_admission_leaves_other_containers_alone(self, subject: Subject) -> None:
        """A container that names none of the vendor's resources gets environment at most."""
        for limits in foreign_limits(subject):
            container = container_asking(limits)
            answer = subject.vendor.admit(container, pod_of(container), ContainerKind.APP)
            assert isinstance(answer, Admission), (
                f"hami_admit denies a container with limits {limits}, which ask nothing of this "
                f"vendor: {answer}"
            )
            changed = changes(answer, container)
            assert not changed, (
                f"hami_admit sets {changed} for a container with limits {limits}, which ask "
                f"nothing of this vendor"
            )

    def test_admitting_twice_changes_nothing(self, subject: Subject) -> None:
        """The API server may call the webhook again on its own result."""
        vendors, names = subject.vendors, subject.profile.resources
        amounts = ((names.memory, "1000"), (names.memory_percentage, "50"), (names.cores, "30"))
        said = {name: text for name, text in amounts if name}
        settings, ledger = AdmissionSettings(), QuotaLedger(vendors)
        one = {names.count: "1"}
        for limits in ({}, one, said, {**one, **said}, *({name: said[name]} for name in said)):
            first = admit(pod_of(container_asking(limits)), vendors, settings, ledger)
            if not isinstance(first, Admitted):
                continue
            again = admit(first.pod, vendors, settings, ledger)
            assert isinstance(again, Admitted), (
                f"a pod with {limits} is admitted, and then denied as it was admitted: {again}"
            )
            assert again.pod == first.pod, (
                f"hami_admit changes a pod with {limits} again: {first.pod}, then {again.pod}"
            )

    def _memory(self, subject: Subject, text: str) -> int | None:
        names = subject.profile.resources
        return asked(subject, {names.count: "1", names.memory: text}).memory_mib
