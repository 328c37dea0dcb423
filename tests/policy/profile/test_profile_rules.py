"""What a profile may say of itself, field by field."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from hami.domain.profile import ModeRules, VendorProfile
from hami.domain.units import MAX_DEVICE_MEMORY
from hami.policy.profile.profile_rules import (
    annotation_key_problem,
    profile_problems,
    resource_name_problem,
)

from ...builders import a_profile


def with_names(**names: object) -> VendorProfile:
    profile = a_profile()
    return replace(profile, resources=replace(profile.resources, **names))


def with_pod_keys(**keys: object) -> VendorProfile:
    profile = a_profile()
    return replace(profile, pod_annotations=replace(profile.pod_annotations, **keys))


def with_node_keys(**keys: object) -> VendorProfile:
    profile = a_profile()
    return replace(profile, node_annotations=replace(profile.node_annotations, **keys))


@pytest.mark.parametrize(
    "profile",
    [
        pytest.param(a_profile(), id="an ordinary one"),
        pytest.param(a_profile("A"), id="a key of one letter"),
        pytest.param(a_profile("Acme-2.x"), id="a key with hyphen and dot"),
        pytest.param(a_profile("A" * 40), id="a key of 40 letters"),
        pytest.param(with_names(memory="", cores="", priority=""), id="a count alone"),
        pytest.param(
            with_pod_keys(use_type=("acme.com/type", "plain"), use_uuid=("acme.com/type",)),
            id="two choices in one annotation",
        ),
        pytest.param(with_pod_keys(to_allocate=""), id="no plan beside the record"),
        pytest.param(a_profile(max_count=3, default_count=3), id="the most by default"),
        pytest.param(
            a_profile(default_memory_mib=MAX_DEVICE_MEMORY, default_cores=100),
            id="the largest defaults",
        ),
        pytest.param(a_profile(guarded_paths=("/etc/acme", "/run/a/b")), id="guarded paths"),
        pytest.param(a_profile(modes={"mig": ModeRules(placements=True)}), id="a mode"),
        pytest.param(
            replace(with_node_keys(lock="acme.com/own.lock"), lock="private"), id="its own lock"
        ),
    ],
)
def test_a_profile_that_may_be_has_no_problem(profile):
    assert profile_problems(profile) == ()


@pytest.mark.parametrize(
    ("profile", "problem"),
    [
        pytest.param(
            replace(a_profile(), key=""),
            "key is '', not 1 to 40 letters, digits, '-' and '.'",
            id="no key",
        ),
        pytest.param(
            replace(a_profile(), key="../etc"),
            "key is '../etc', not 1 to 40 letters, digits, '-' and '.'",
            id="a key that leaves its directory",
        ),
        pytest.param(
            replace(a_profile(), key="ACME\n"),
            "key is 'ACME\\n', not 1 to 40 letters, digits, '-' and '.'",
            id="a key that ends with a line",
        ),
        pytest.param(
            replace(a_profile(), key="A_B"),
            "key is 'A_B', not 1 to 40 letters, digits, '-' and '.'",
            id="an underscore in the key",
        ),
        pytest.param(
            replace(a_profile(), key="A" * 41),
            f"key is {'A' * 41!r}, not 1 to 40 letters, digits, '-' and '.'",
            id="a key of 41 letters",
        ),
        *(
            pytest.param(
                a_profile(guarded_paths=("/etc/acme", path)),
                f"guarded_paths has {path!r}, not a plain path below /run/, /var/run/, /etc/, /usr/",
                id=f"guarded: {path!r}",
            )
            for path in ("", "/", "/etc/", "/etc//acme", "/etc/../lib", "etc/acme", "/opt/acme")
        ),
        *(
            pytest.param(
                a_profile(guarded_paths=("/etc/acme", path)),
                f"guarded_paths has {path!r}, where Kubernetes mounts the service account of every pod",
                id=f"guarded: {path!r}",
            )
            for path in (
                "/run/secrets",
                "/var/run/secrets/kubernetes.io",
                "/run/secrets/kubernetes.io/serviceaccount",
                "/var/run/secrets/kubernetes.io/serviceaccount/token",
            )
        ),
        pytest.param(
            with_names(count=""),
            "resources.count is empty, and without it nobody can ask for a device",
            id="no count",
        ),
        pytest.param(
            with_names(count="a b c"),
            "resources.count is 'a b c': an extended resource has a domain, as in "
            "example.com/device",
            id="words for a name",
        ),
        pytest.param(
            with_names(memory="memory"),
            "resources.memory is 'memory': an extended resource has a domain, as in "
            "example.com/device",
            id="Kubernetes' memory",
        ),
        pytest.param(
            with_names(cores="acme.com/co res"),
            "resources.cores is 'acme.com/co res': 'co res' is not 1 to 63 letters, digits and "
            "'-_.'",
            id="a blank in a name",
        ),
        pytest.param(
            with_names(memory="acme.com/gpu"),
            "resources.count and resources.memory are both 'acme.com/gpu', and each needs its own",
            id="one name for two amounts",
        ),
        pytest.param(
            with_names(memory_percentage="acme.com/pri"),
            "resources.memory_percentage and resources.priority are both 'acme.com/pri', and each "
            "needs its own",
            id="one name for a share and a priority",
        ),
        pytest.param(
            with_pod_keys(allocated=""),
            "pod_annotations.allocated is empty, and without it nothing is found again",
            id="no record",
        ),
        pytest.param(
            with_node_keys(register=""),
            "node_annotations.register is empty, and without it nothing is found again",
            id="no register",
        ),
        pytest.param(
            with_pod_keys(nouse_uuid=("acme.com/a", "acme.com/b b")),
            "pod_annotations.nouse_uuid is 'acme.com/b b': 'b b' is not 1 to 63 letters, digits "
            "and '-_.'",
            id="the second spelling of a choice",
        ),
        pytest.param(
            with_pod_keys(to_allocate="acme.com/allocated"),
            "pod_annotations.to_allocate and pod_annotations.allocated are both "
            "'acme.com/allocated', and each needs its own",
            id="the plan is the record",
        ),
        pytest.param(
            with_node_keys(register="acme.com/to-allocate"),
            "node_annotations.register and pod_annotations.to_allocate are both "
            "'acme.com/to-allocate', and each needs its own",
            id="the register is the plan",
        ),
        pytest.param(
            with_node_keys(handshake="acme.com/register"),
            "node_annotations.register and node_annotations.handshake are both "
            "'acme.com/register', and each needs its own",
            id="the handshake is the register",
        ),
        pytest.param(
            with_pod_keys(numa_bind="acme.com/allocated"),
            "pod_annotations.allocated and pod_annotations.numa_bind are both "
            "'acme.com/allocated', and each needs its own",
            id="a choice is the record",
        ),
        pytest.param(
            a_profile(memory_factor=0), "memory_factor is 0, not at least 1", id="a factor of 0"
        ),
        pytest.param(a_profile(max_count=0), "max_count is 0, not at least 1", id="none at most"),
        pytest.param(
            a_profile(max_count=2, default_count=3),
            "default_count is 3, not between 0 and 2",
            id="more by default than at most",
        ),
        pytest.param(
            a_profile(default_memory_mib=MAX_DEVICE_MEMORY + 1),
            f"default_memory_mib is {MAX_DEVICE_MEMORY + 1}, not between 0 and {MAX_DEVICE_MEMORY}",
            id="memory in bytes",
        ),
        pytest.param(
            a_profile(default_cores=101),
            "default_cores is 101, not between 0 and 100",
            id="more than a whole device",
        ),
        pytest.param(
            a_profile(default_cores=-1),
            "default_cores is -1, not between 0 and 100",
            id="less than nothing",
        ),
        pytest.param(replace(a_profile(), key=7), "key is 7, not a text", id="a number for a key"),
        pytest.param(
            a_profile(memory_factor="2"),
            "memory_factor is '2', not a whole number",
            id="a text for a number",
        ),
        pytest.param(
            a_profile(max_count=True),
            "max_count is True, not a whole number",
            id="a yes for a number",
        ),
        pytest.param(
            a_profile(whole_device=1),
            "whole_device is 1, not True or False",
            id="a number for a yes",
        ),
        pytest.param(
            a_profile(lock="private"),
            "node_annotations.lock is empty, and a private lock is written there",
            id="its own lock nowhere",
        ),
        pytest.param(
            with_node_keys(lock="acme.com/register"),
            "node_annotations.register and node_annotations.lock are both 'acme.com/register', "
            "and each needs its own",
            id="its own lock in place of its devices",
        ),
        pytest.param(
            a_profile(lock="mutexx"),
            "lock is 'mutexx', not 'mutex' or 'private' or 'none'",
            id="a word that is no choice",
        ),
        pytest.param(
            a_profile(resources={"count": "acme.com/gpu"}),
            "resources is {'count': 'acme.com/gpu'}, not ResourceNames",
            id="a mapping for the names",
        ),
        pytest.param(
            with_names(memory=None), "resources.memory is None, not a text", id="None for a name"
        ),
        pytest.param(
            with_pod_keys(use_type="acme.com/use-type"),
            "pod_annotations.use_type is 'acme.com/use-type', not a tuple of texts",
            id="a text for several",
        ),
        pytest.param(
            a_profile(modes={"mig": None}),
            "modes is {'mig': None}, not a mapping of modes to ModeRules",
            id="a mode without rules",
        ),
    ],
)
def test_a_profile_that_cannot_be_says_why(profile, problem):
    assert profile_problems(profile) == (problem,)


def test_every_problem_is_named():
    profile = a_profile(memory_factor=0, max_count=0)
    assert len(profile_problems(profile)) == 2


@pytest.mark.parametrize("field", [f.name for f in fields(VendorProfile)])
def test_no_field_of_another_kind_is_taken(field):
    """Nothing that a plugin puts there breaks the check itself."""
    (problem,) = profile_problems(replace(a_profile(), **{field: 1.5}))
    assert problem.startswith(f"{field} is 1.5, not ")


@pytest.mark.parametrize(
    ("part", "with_keys"),
    [("node_annotations", with_node_keys), ("pod_annotations", with_pod_keys)],
)
def test_every_annotation_key_is_checked(part, with_keys):
    keys = getattr(a_profile(), part)
    for name in (field.name for field in fields(keys)):
        spoilt = ("no key",) if isinstance(getattr(keys, name), tuple) else "no key"
        (problem,) = profile_problems(with_keys(**{name: spoilt}))
        assert problem.startswith(f"{part}.{name} is 'no key': ")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        pytest.param("acme.com/gpu", "", id="an ordinary one"),
        pytest.param("acme/GPU_1.x", "", id="capitals after the domain"),
        pytest.param("cpu", "has a domain", id="Kubernetes' own"),
        pytest.param("/gpu", "no domain", id="an empty domain"),
        pytest.param("acme.com/", "not 1 to 63", id="an empty word"),
        pytest.param("Acme.com/gpu", "no domain in lower case", id="a domain in capitals"),
        pytest.param("a/b/c", "no domain in lower case", id="two slashes"),
        pytest.param("kubernetes.io/gpu", "is not yours", id="Kubernetes' domain"),
        pytest.param("x.kubernetes.io/gpu", "is not yours", id="below Kubernetes' domain"),
        pytest.param("requests.acme.com/gpu", "for quotas", id="the name in a quota"),
        pytest.param("a." * 122 + "a/gpu", "at most 244 characters", id="too long for a quota"),
        pytest.param("a." * 121 + "aa/gpu", "", id="as long as a quota takes"),
        pytest.param(f"acme.com/{'g' * 64}", "not 1 to 63", id="a long word"),
        pytest.param("acme.com/gpu\n", "not 1 to 63", id="a line after it"),
    ],
)
def test_resource_names(name, says):
    problem = resource_name_problem(name)
    assert says in problem
    assert bool(problem) is bool(says)


@pytest.mark.parametrize(
    ("key", "says"),
    [
        pytest.param("hami.io/node-register", "", id="an ordinary one"),
        pytest.param("register", "", id="no domain"),
        pytest.param("", "not 1 to 63", id="nothing"),
        pytest.param("a b", "not 1 to 63", id="a blank"),
        pytest.param("-a", "not 1 to 63", id="a hyphen in front"),
        pytest.param("é", "not 1 to 63", id="a letter that is not ASCII"),
        pytest.param("/a", "no domain", id="an empty domain"),
        pytest.param("a..b/c", "no domain", id="two dots"),
        pytest.param(f"{'a' * 254}/c", "no domain", id="a long domain"),
    ],
)
def test_annotation_keys(key, says):
    problem = annotation_key_problem(key)
    assert says in problem
    assert bool(problem) is bool(says)
