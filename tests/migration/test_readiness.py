"""What a move means, by what a cluster shows."""

from __future__ import annotations

import pytest

from hami.domain.errors import ConfigError
from hami.migration.conversion import convert
from hami.migration.readiness import Bearing, hami_nodes, judge, unsigned
from hami.migration.seen import read_release, version_of
from hami.vendors.registry import load_vendors
from tests.migration.seeing import (
    a_cluster,
    a_node,
    a_plugin,
    a_pod,
    a_release,
    a_workload,
)

VENDORS = load_vendors()


def judged(seen, values=None):
    conversion = convert(seen.values if values is None else values)
    return judge(seen, VENDORS, conversion)


def said(seen, bearing):
    return [(one.about, one.text) for one in judged(seen) if one.bearing is bearing]


def test_a_cluster_as_hamis_chart_makes_it_has_nothing_to_decide():
    found = judged(a_cluster())
    assert {one.bearing for one in found} == {Bearing.CHANGES, Bearing.KEEPS}
    assert said(a_cluster(), Bearing.KEEPS) == [("n1", "1 pod with devices, which our scheduler charges as HAMi does")]  # fmt: skip


CASES = [
    ("a vendor without a plugin", {"nodes": [a_node("n1", node_MR_V100_register="x")]}, "cannot be honoured", "hami.io/node-MR-V100-register", "n1"),
    ("one that is named the other way round", {"nodes": [a_node("n1", node_register_xpu="x")]}, "cannot be honoured", "hami.io/node-register-xpu", "n1"),
    ("a vendor that publishes nothing", {"nodes": [a_node("n1", has={"cambricon.com/vmlu": "4"})]}, "cannot be honoured", "cambricon.com/vmlu", "n1"),
    ("such devices that are gone", {"nodes": [a_node("n1", has={"cambricon.com/vmlu": "0"})]}, "cannot be honoured", None, ""),
    ("many such nodes", {"nodes": [a_node(f"n{n}", node_mlu_register="x") for n in range(7)]}, "cannot be honoured", "hami.io/node-mlu-register", "n0, n1, n2, n3, n4 and 2 more"),
    ("a vendor whose plugin stays HAMi's", {"nodes": [a_node("n1", node_dcu_register="x")]}, "changes", "DCU", "vendors.DCU.enabled"),
    ("a handshake is no register", {"nodes": [a_node("n1", node_handshake_mlu="x")]}, "cannot be honoured", None, ""),
    ("dynamic MIG", {"nodes": [a_node("n1", mode="mig")]}, "changes", "mode mig", "filterdevices"),
    ("a mode that we have not", {"nodes": [a_node("n1", mode="mps")]}, "cannot be honoured", "mode mps", "n1"),
    ("an old kubelet", {"nodes": [a_node("n1", kubelet="v1.28.9")]}, "changes", "identity", "n1"),
    ("an old runtime", {"nodes": [a_node("n1", runtime="containerd://1.7.2")]}, "changes", "identity", "n1"),
    ("a runtime of CRI-O", {"nodes": [a_node("n1", runtime="cri-o://1.30.1")]}, "changes", None, ""),
    ("an unknown runtime", {"nodes": [a_node("n1", runtime="")]}, "changes", None, ""),
    ("an older HAMi", {"schedulers": [a_workload("hami-scheduler", metadata__labels={"app.kubernetes.io/version": "2.6.1"})]}, "not known", "hami-scheduler", "2.6.1"),
    ("a newer HAMi", {"plugins": [a_plugin(metadata__labels={"app.kubernetes.io/version": "2.11.0"})]}, "not known", "hami-device-plugin", "2.11.0"),
    ("two of them", {"schedulers": [a_workload("hami-scheduler"), a_workload("hami-scheduler", metadata__namespace="other")]}, "not known", "HAMi", "several"),
    ("a right that is missing", {"denied": ["list pods"]}, "not known", "rights", "list pods"),
    ("a privileged pod", {"pods": [a_pod(container={"securityContext": {"privileged": True}})]}, "cannot be honoured", "team-a/p", "privileged"),
    ("a pod with a volume over its slice", {"pods": [a_pod(container={"volumeMounts": [{"mountPath": "/usr/local/vgpu"}]})]}, "cannot be honoured", "team-a/p", "/usr/local/vgpu"),
    ("a privileged pod without devices", {"pods": [a_pod(asks=False, container={"securityContext": {"privileged": True}})]}, "cannot be honoured", None, ""),
    ("an allocation that cannot be read", {"pods": [a_pod(allocated="GPU-n1,NVIDIA,x,0:;")]}, "not known", "team-a/p", "n1"),
    ("no allocation", {"pods": [a_pod(allocated=None)]}, "not known", "team-a/p", "n1"),
    ("a pod that has ended", {"pods": [a_pod(allocated=None, status__phase="Failed")]}, "not known", None, ""),
    ("a pod that waits", {"pods": [a_pod(node="")]}, "keeps running", None, ""),
    ("namespaces past the webhook", {"ignored_namespaces": ["team-a", "team-b"]}, "changes", "hami.io/webhook: ignore", "team-a"),
    ("a namespace past it without devices", {"ignored_namespaces": ["team-b"]}, "changes", None, ""),
    ("a value that cannot be honoured", {"values": {"devicePlugin": {"hostNetwork": True}}}, "cannot be honoured", "devicePlugin.hostNetwork", "pod network"),
    ("a key that HAMi has not", {"values": {"a": 1}}, "cannot be honoured", "a", "no such key"),
]  # fmt: skip


@pytest.mark.parametrize(("changed", "bearing", "about", "text"), [pytest.param(*case[1:], id=case[0]) for case in CASES])  # fmt: skip
def test_what_is_found(changed, bearing, about, text):
    usual = {one.about for one in judged(a_cluster())}
    found = {one: words for one, words in said(a_cluster(**changed), Bearing(bearing)) if one not in usual}  # fmt: skip
    assert list(found) == ([] if about is None else [about])
    assert text in found.get(about, "")


def test_values_that_nobody_knows_are_asked_for():
    (found,) = [one for one in judge(a_cluster(), VENDORS, None) if one.bearing is Bearing.UNKNOWN]
    assert (found.about, "--values" in found.text) == ("values", True)


def test_only_the_first_pods_of_many_are_named():
    bad = [a_pod(f"p{n}", container={"securityContext": {"privileged": True}}) for n in range(8)]
    lost = said(a_cluster(pods=bad), Bearing.LOST)
    assert len(lost) == 6
    assert lost[-1] == ("pods", "3 more are refused likewise")


def test_whose_signature_is_missing():
    signed = a_pod("signed", metadata__annotations={"hami.io/allocation-signature": "x"})
    pods = [a_pod("theirs"), signed, a_pod("none", asks=False), a_pod("over", status__phase="Failed"), a_pod("waits", node="")]  # fmt: skip
    assert unsigned(a_cluster(pods=pods), VENDORS) == ("team-a/theirs",)


def test_nodes_are_those_that_the_daemonset_selects():
    nodes = [a_node("n2"), a_node("n1"), a_node("n3", labels={})]
    assert hami_nodes(a_cluster(nodes=nodes), a_plugin()) == ("n1", "n2")
    assert hami_nodes(a_cluster(nodes=nodes), None) == ()


# What Helm keeps.


def test_a_release_as_helm_writes_it():
    release = read_release(a_release(name="hami", version=3, config={"a": 1}, chart={"metadata": {"version": "2.10.0"}}))  # fmt: skip
    assert (release.name, release.version, release.config) == ("hami", 3, {"a": 1})


@pytest.mark.parametrize("data", ["", "!", "YWJj", a_release()[:-8], a_release(version="three")])
def test_what_is_no_release_is_an_error_with_a_remedy(data):
    with pytest.raises(ConfigError, match="--values"):
        read_release(data)


def test_a_release_that_unpacks_without_end_is_refused():
    with pytest.raises(ConfigError, match="too long"):
        read_release(a_release(name=" " * (65 << 20)))


@pytest.mark.parametrize(("text", "version"), [("v1.31.2+k3s1", (1, 31, 2)), ("2.10", (2, 10, 0)), ("", ()), ("latest", ())])  # fmt: skip
def test_a_version_is_read(text, version):
    assert version_of(text) == version
