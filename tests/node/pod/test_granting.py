"""Whose grants these are, and whether the scheduler gave them."""

from __future__ import annotations

import msgspec
import pytest

from hami.domain.kubernetes.objects import Container, Metadata, SecurityContext, VolumeMount
from hami.node.pod.pods import Granted, NotGranted
from hami.signing import Signer, new_private_pem
from hami.wire import keys

from ..parts import Parts, a_grant

ALLOCATED = "acme.com/allocated"


def annotated(pod, **annotations):
    """With these instead; None takes one away."""
    kept = {k: v for k, v in (pod.annotations | annotations).items() if v is not None}
    metadata = msgspec.structs.asdict(pod.metadata) | {"annotations": kept}
    return msgspec.structs.replace(pod, metadata=Metadata(**metadata))


def test_each_container_has_its_own_grants_with_the_generation(parts):
    pod = parts.pod(
        init=["first"], first=[a_grant("A", 100)], main=[a_grant("B", 200)], generation=3
    )
    for container, device in (("first", "A"), ("main", "B")):
        granted = parts.granted(pod, container)
        assert [grant.device_id for grant in granted.grants] == [device]
        assert (granted.container, granted.generation) == (container, 3)


@pytest.mark.parametrize(
    ("pod", "edits", "container", "words"),
    [
        ({}, {}, "nobody", "gives this container nothing of ACME"),
        ({"main": []}, {}, "main", "asks for no device of a vendor that is known here"),
        ({"node": "n2"}, {}, "main", "is bound to node 'n2', not n1"),
        ({}, {ALLOCATED: None}, "main", "has no annotation acme.com/allocated"),
        ({}, {ALLOCATED: "A,ACME,nine,0:;"}, "main", "acme.com/allocated"),
        ({}, {ALLOCATED: "A,ACME,9000,10:;"}, "main", "annotations were edited"),
        ({}, {keys.ALLOCATED_CORES_LIMIT: "main=90"}, "main", "annotations were edited"),
        ({}, {keys.ALLOCATED_CORES_LIMIT: "main=x"}, "main", "hami.io/allocated-gpucores-limit"),
        (
            {},
            {ALLOCATED: "A,ACME,1000,10:;B,ACME,1,1:;"},
            "main",
            "devices of more containers than the pod has",
        ),
        ({}, {keys.ALLOCATION_SIGNATURE: "x"}, "main", "the signature of its allocation"),
        ({"sign": False}, {}, "main", "has no signature"),
    ],
)
def test_nothing_is_granted(parts, pod, edits, container, words):
    granted = parts.granting.granted(annotated(parts.pod(**pod), **edits), container)
    assert isinstance(granted, NotGranted)
    assert words in granted.text
    assert "team/p" in granted.text


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"security_context": SecurityContext(privileged=True)}, "container helper is privileged"),
        ({"volume_mounts": [VolumeMount(mount_path="/run/hami/acme")]}, "at /run/hami/acme, over"),
    ],
)
def test_nothing_is_granted_to_a_pod_that_could_leave_its_slice(parts, fields, words):
    pod = parts.pod()
    helped = [*pod.spec.containers, Container(name="helper", **fields)]
    pod = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, containers=helped))
    granted = parts.granting.granted(pod, "main")
    assert isinstance(granted, NotGranted)
    assert words in granted.text


def test_the_signature_of_another_pod_is_none(parts):
    theirs = parts.pod("q").annotations
    granted = parts.granting.granted(annotated(parts.pod("p"), **theirs), "main")
    assert isinstance(granted, NotGranted)


def test_a_signature_by_other_keys_is_none(parts):
    pod = parts.pod()
    parts.signer = Signer.from_pem(new_private_pem())
    assert "not one of ours" in parts.granting.granted(pod, "main").text


def test_an_old_allocation_that_somebody_put_back_is_refused_until_the_pod_is_gone(parts):
    old = parts.pod(generation=1)
    parts.granted(parts.pod(generation=2))
    assert "somebody put an old one back" in parts.granting.granted(old, "main").text
    parts.granting.forget(old.uid)
    assert isinstance(parts.granting.granted(old, "main"), Granted)


def test_what_the_disk_says_counts_as_seen(parts):
    pod = parts.pod(generation=4)
    fresh = parts.a_granting()
    assert isinstance(fresh.recovered(pod, "main", 4), Granted)
    assert "put an old one back" in fresh.granted(parts.pod(generation=3), "main").text


def test_where_signatures_are_no_condition_one_that_was_there_stays_one(tmp_path):
    parts = Parts(tmp_path, unsigned=True)
    assert parts.granted(parts.pod("q", sign=False)).generation == 0
    parts.granted(parts.pod("p", generation=1))
    stripped = parts.granting.granted(parts.pod("p", sign=False), "main")
    assert isinstance(stripped, NotGranted)
    parts.close()
