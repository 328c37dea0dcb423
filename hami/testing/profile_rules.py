"""Checks of what a vendor says about itself: key, names, annotation keys, numbers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from hami.domain.profile import VendorProfile
from hami.testing.subject import Subject, registry

_WORD = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?", re.ASCII)
_DOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)


def annotation_key_problem(key: str) -> str:
    """Why Kubernetes refuses this annotation key; empty when it does not."""
    domain, slash, name = key.rpartition("/")
    if slash and not (_DOMAIN.fullmatch(domain) and len(domain) <= 253):
        return f"{domain!r} is no domain in lower case"
    if not (_WORD.fullmatch(name) and len(name) <= 63):
        return f"{name!r} is not 1 to 63 letters, digits and '-_.'"
    return ""


def resource_name_problem(name: str) -> str:
    """Why Kubernetes refuses this name of an extended resource; empty when it does not."""
    domain, slash, _ = name.rpartition("/")
    if not slash:
        return "an extended resource has a domain: example.com/device"
    if domain == "kubernetes.io" or domain.endswith(".kubernetes.io"):
        return "the domain kubernetes.io is not yours"
    # A ResourceQuota writes "requests." before it, and that must fit as well.
    return annotation_key_problem(f"requests.{name}")


def _twice(names: Iterable[str]) -> list[str]:
    return sorted(name for name, count in Counter(names).items() if count > 1)


def _written_keys(profile: VendorProfile) -> tuple[str, ...]:
    """The annotations that are written for this vendor alone."""
    keys = (
        profile.node_annotations.register,
        profile.node_annotations.handshake,
        profile.pod_annotations.to_allocate,
        profile.pod_annotations.allocated,
        *profile.pod_annotations.also_written,
    )
    return tuple(key for key in keys if key)


def _choice_keys(profile: VendorProfile) -> tuple[str, ...]:
    """The annotations that a pod's author or a node's operator writes."""
    pod = profile.pod_annotations
    spelled = (*pod.use_type, *pod.nouse_type, *pod.use_uuid, *pod.nouse_uuid)
    keys = (*spelled, pod.numa_bind, pod.mode, profile.node_annotations.cordon)
    return tuple(key for key in keys if key)


class ProfileRules:
    """A profile that Kubernetes and the core can use."""

    def test_the_key_is_one_plain_word(self, subject: Subject) -> None:
        """The key stands in annotations, paths and CDI names: letters, digits and '-_.'."""
        key = subject.profile.key
        assert _WORD.fullmatch(key), f"vendor key {key!r}: use letters, digits and '-_.' only"
        assert len(key) <= 40, f"vendor key {key!r} is longer than 40 characters"

    def test_keys_differ_in_lower_case(self, subject: Subject) -> None:
        """Paths and CDI kinds carry the key in lower case."""
        twice = _twice(key.lower() for key in subject.vendors)
        assert not twice, f"vendor keys that differ by case alone: {twice}; rename one of each"

    def test_resource_names_are_valid_and_distinct(self, subject: Subject) -> None:
        """Each resource is an extended resource with one meaning; the count is required."""
        names = subject.profile.resources
        assert names.count, "resources.count is empty; without it nobody can ask for a device"
        for name in names.all_names:
            problem = resource_name_problem(name)
            assert not problem, f"resource name {name!r}: {problem}"
        twice = _twice(name for p in subject.vendors.profiles for name in p.resources.all_names)
        assert not twice, f"resource names with two meanings: {twice}; give each its own"

    def test_annotation_keys_are_valid(self, subject: Subject) -> None:
        """The API server refuses a pod or node with a bad annotation key."""
        for key in (*_written_keys(subject.profile), *_choice_keys(subject.profile)):
            problem = annotation_key_problem(key)
            assert not problem, f"annotation key {key!r}: {problem}"

    def test_written_annotations_have_one_meaning(self, subject: Subject) -> None:
        """What is written for a vendor is found again: present, and shared with nothing."""
        profile = subject.profile
        assert profile.node_annotations.register, "node_annotations.register is empty"
        assert profile.pod_annotations.allocated, "pod_annotations.allocated is empty"
        keys = [key for p in subject.vendors.profiles for key in _written_keys(p)]
        twice = _twice([*keys, *set(_choice_keys(profile))])
        assert not twice, f"annotation keys with two meanings: {twice}; give each its own"

    def test_numbers_make_sense(self, subject: Subject) -> None:
        """Factors, defaults and limits are within their ranges."""
        p = subject.profile
        ranges = (
            ("memory_factor", p.memory_factor, 1, 1 << 20),
            ("max_count", p.max_count, 1, 1 << 20),
            ("default_count", p.default_count, 0, p.max_count),
            ("default_memory_mib", p.default_memory_mib, 0, 1 << 24),
            ("default_cores", p.default_cores, 0, 100),
        )
        for name, value, low, high in ranges:
            assert low <= value <= high, f"{name} is {value}, not between {low} and {high}"

    def test_the_same_config_names_the_same_vendors(self, subject: Subject) -> None:
        """``hami_vendors`` depends on its config alone."""
        again = registry({"plugin": subject.plugin}, subject.config)
        assert again.profiles == subject.vendors.profiles, (
            "hami_vendors gave other profiles when it was asked again with the same config"
        )

    def test_the_plugin_does_without_its_section(self, subject: Subject) -> None:
        """A device configuration that says nothing of this plugin is no reason to fail."""
        registry({"plugin": subject.plugin})
