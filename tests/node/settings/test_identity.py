"""Which way a node's agent finds its pods, and how the node says so."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hami.domain.kubernetes.objects import Metadata, Node
from hami.domain.profile import NodeAnnotations, PodAnnotations, ResourceNames, VendorProfile
from hami.domain.units import VendorKey
from hami.node.settings.identity import choose_identity
from hami.wire.node_identity import (
    lease_name,
    lock_of,
    marked,
    merged_identity,
    without_identity,
)


@pytest.mark.parametrize(
    ("kubelet", "runtime", "identity", "because"),
    [
        pytest.param("v1.29.0", "containerd://2.0.0", "kubelet", "speak CDI by default", id="the oldest pair"),
        pytest.param("v1.36.3", "containerd://2.4.2", "kubelet", "v1.36.3", id="a new pair"),
        pytest.param("v1.31.1", "cri-o://1.28.0", "kubelet", "cri-o://1.28.0", id="CRI-O"),
        pytest.param("v1.30.5-gke.1014000", "containerd://2.0.1-k3s1", "kubelet", "", id="vendors' suffixes"),
        pytest.param("v1.31.4+k3s1", "containerd://2.0.0-rc.5", "kubelet", "", id="k3s"),
        pytest.param("v1.28.15", "containerd://2.4.2", "lock", "older than 1.29", id="an old kubelet"),
        pytest.param("v1.9.0", "containerd://2.4.2", "lock", "older than 1.29", id="numbers, not texts, are compared"),
        pytest.param("v1.36.3", "containerd://1.7.27", "lock", "older than containerd 2.0", id="containerd 1"),
        pytest.param("v1.36.3", "cri-o://1.27.8", "lock", "older than cri-o 1.28", id="an old CRI-O"),
        pytest.param("v1.36.3", "docker://27.1.0", "lock", "none of containerd and cri-o", id="docker"),
        pytest.param("v1.36.3", "containerd://Unknown", "lock", "cannot be read", id="a runtime without a version"),
        pytest.param("v1.36.3", "", "lock", "none of containerd", id="a node that says nothing of its runtime"),
        pytest.param("", "containerd://2.4.2", "lock", "cannot be read", id="a node that says nothing of kubelet"),
        pytest.param("v2.0.0", "containerd://10.0.0", "kubelet", "", id="the future"),
    ],
)  # fmt: skip
def test_auto(kubelet, runtime, identity, because):
    choice = choose_identity("auto", kubelet, runtime)
    assert choice.identity == identity
    assert because in choice.why


@pytest.mark.parametrize("asked", ["kubelet", "lock"])
@pytest.mark.parametrize("runtime", ["containerd://2.4.2", "docker://27"])
def test_what_is_asked_for_is_taken(asked, runtime):
    assert choose_identity(asked, "v1.36.3", runtime).identity == asked


def test_kubelet_asked_for_where_it_may_not_work_says_so():
    why = choose_identity("kubelet", "v1.36.3", "containerd://1.7.0").why
    assert "although" in why
    assert "containerd://1.7.0" in why
    assert "although" not in choose_identity("lock", "v1.36.3", "containerd://1.7.0").why


@given(st.text(), st.text())
def test_any_text_decides(kubelet, runtime):
    assert choose_identity("auto", kubelet, runtime).identity in ("kubelet", "lock")


@pytest.mark.parametrize(
    ("text", "merged"),
    [
        pytest.param("", "NVIDIA=kubelet", id="the first agent of the node"),
        pytest.param("NVIDIA=lock", "NVIDIA=kubelet", id="what an agent of before said"),
        pytest.param("NVIDIA=kubelet", "NVIDIA=kubelet", id="nothing new"),
        pytest.param("DCU=lock", "DCU=lock,NVIDIA=kubelet", id="beside another vendor's"),
        pytest.param("NVIDIA=lock, DCU=lock", "NVIDIA=kubelet,DCU=lock", id="in its place"),
        pytest.param("NVIDIA=lock,DCU=lock,NVIDIA=lock", "NVIDIA=kubelet,DCU=lock", id="twice"),
        pytest.param("XNVIDIA=lock", "XNVIDIA=lock,NVIDIA=kubelet", id="another name that ends alike"),
        pytest.param(",,junk,", "junk,NVIDIA=kubelet", id="what others wrote stays"),
    ],
)  # fmt: skip
def test_merged(text, merged):
    assert merged_identity(text, VendorKey("NVIDIA"), "kubelet") == merged


def a_profile(key: str) -> VendorProfile:
    return VendorProfile(
        key=VendorKey(key),
        resources=ResourceNames(count="x/n"),
        node_annotations=NodeAnnotations(register="x/r"),
        pod_annotations=PodAnnotations(allocated="x/a"),
    )


@given(st.lists(st.tuples(st.sampled_from("ABC"), st.sampled_from(["kubelet", "lock"]))))
def test_each_vendor_is_read_as_it_was_last_written(written):
    text, last = "", dict(written)
    for vendor, identity in written:
        text = merged_identity(text, VendorKey(vendor), identity)
    annotations = {"hami.io/node-identity": text, "x/r": marked("[]", a_profile("A"))}
    node = Node(metadata=Metadata(annotations=annotations))
    for vendor in "ABC":
        needed = "none" if last.get(vendor) == "kubelet" else "mutex"
        assert lock_of(node, a_profile(vendor)) == needed


@pytest.mark.parametrize(
    ("said", "register", "silent", "lock"),
    [
        pytest.param("A=kubelet", "[]\n", False, "none", id="one of ours that lives"),
        pytest.param("A=kubelet", "[]\n", True, "mutex", id="one that is silent"),
        pytest.param("A=kubelet", "[]", False, "mutex", id="another plugin has the devices by now"),
        pytest.param("A=kubelet", "", False, "mutex", id="nobody has published any"),
        pytest.param("A=simulated", "[]", True, "none", id="a node without a machine"),
        pytest.param("A=lock", "[]\n", False, "mutex", id="one that needs the lock"),
        pytest.param("", "[]\n", False, "mutex", id="one that says nothing"),
        pytest.param("B=kubelet", "[]\n", False, "mutex", id="another vendor's"),
    ],
)
def test_whose_word_spares_the_lock(said, register, silent, lock):
    annotations = {"hami.io/node-identity": said, "x/r": register}
    node = Node(metadata=Metadata(annotations=annotations))
    assert lock_of(node, a_profile("A"), silent=silent) == lock


@pytest.mark.parametrize(
    ("text", "left"),
    [
        pytest.param("ACME=kubelet", None, id="nothing is left"),
        pytest.param("", None, id="nor was there before"),
        pytest.param(" BOLT=lock , ACME=kubelet,ACME=lock", "BOLT=lock", id="each of its entries"),
        pytest.param("ACMEX=kubelet", "ACMEX=kubelet", id="another one's"),
    ],
)
def test_what_is_left_without_a_vendor(text, left):
    assert without_identity(text, VendorKey("ACME")) == left


@pytest.mark.parametrize(
    ("node", "vendor", "name"),
    [
        ("n1", "NVIDIA", "hami-nvidia-n1"),
        ("a.example.com", "Metax_GPU", "hami-metax-gpu-a.example.com"),
    ],
)
def test_the_name_of_a_lease(node, vendor, name):
    assert lease_name(node, VendorKey(vendor)) == name


def test_long_names_of_nodes_have_leases_of_their_own():
    names = {lease_name("n" * 250 + end, VendorKey("NVIDIA")) for end in ("a", "b")}
    assert len(names) == 2
    assert {len(name) for name in names} == {253}
