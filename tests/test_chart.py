"""The Helm chart: well-formed, and its lists of annotations are those of the vendors' profiles."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from hami.domain.objects import Metadata, Node
from hami.plugins import load_vendors
from hami.wire import keys
from hami.wire.allocation import allocation_keys

from .kubernetes.chart import CHART, complaints, rendered, values

VENDORS = load_vendors()
SHIPPED = tuple(key for key in VENDORS if key != "MOCK")
KEYS = values()["annotations"]


def named(objects, kind, name):
    found = [o for o in objects if (o["kind"], o["metadata"]["name"]) == (kind, name)]
    assert len(found) == 1
    return found[0]


def vendors_keys(vendor):
    """What the profile and the plugin itself write on a node."""
    profile = VENDORS[vendor].profile
    written = profile.node_annotations
    declared = {written.register, written.handshake, written.lock} - {""}
    asked = Node(metadata=Metadata(name="n", annotations={"mock.hami.io/devices": "h100x8"}))
    devices = VENDORS[vendor].node_devices(
        Node(metadata=Metadata(name="n", annotations=VENDORS.simulated_annotations(asked, {})))
    )
    return declared | set(VENDORS[vendor].node_annotations(devices))


def test_helm_has_nothing_to_say_about_it():
    assert complaints() == []


def test_every_vendor_is_in_the_lists():
    assert sorted(KEYS["vendors"]) == sorted(SHIPPED)


@pytest.mark.parametrize("vendor", SHIPPED)
def test_an_agent_may_write_what_its_vendor_writes_on_a_node(vendor):
    assert set(KEYS["vendors"][vendor]["node"]) == vendors_keys(vendor)


@pytest.mark.parametrize("vendor", SHIPPED)
def test_an_agent_completes_an_allocation_and_does_not_make_one(vendor):
    pods = VENDORS[vendor].profile.pod_annotations
    assert set(KEYS["vendors"][vendor]["pod"]) == {pods.to_allocate, *pods.also_written} - {""}
    assert set(KEYS["vendors"][vendor]["allocation"]) == {pods.allocated}


def test_the_core_s_keys_are_those_of_the_wire():
    """A new key of the scheduler's must be put into one of the lists."""
    core = KEYS["core"]
    assert set(core["pod"]) | set(core["allocation"]) == allocation_keys([])
    assert set(core["node"]) == {keys.NODE_IDENTITY, keys.NODE_LOCK}
    assert core["pod"] == [keys.BIND_PHASE], "signatures are the scheduler's alone"


def test_an_agent_may_patch_nothing_but_status():
    rules = named(rendered(), "ClusterRole", "hami-node-agent")["rules"]
    granted = {(r, verb) for rule in rules for r in rule["resources"] for verb in rule["verbs"]}
    writes = {(r, verb) for r, verb in granted if verb not in ("get", "list", "watch")}
    assert writes == {
        ("pods/status", "patch"), ("nodes/status", "patch"), ("events", "create"), ("events", "patch"),
    }  # fmt: skip
    assert granted - writes == {
        (resource, verb) for resource in ("pods", "nodes") for verb in ("get", "list", "watch")
    }


def test_a_plugin_of_one_s_own_is_a_value():
    more = {"node": ["acme.com/register"], "pod": ["acme.com/todo"], "allocation": ["acme.com/is"]}
    policies = rendered({"annotations": {"vendors": {"ACME": more}}})
    agent = str(named(policies, "ValidatingAdmissionPolicy", "hami-node-agent"))
    others = str(named(policies, "ValidatingAdmissionPolicy", "hami-allocations"))
    assert [key in agent for key in ("acme.com/register", "acme.com/todo", "acme.com/is")] == [True, True, False]  # fmt: skip
    assert [key in others for key in ("acme.com/register", "acme.com/todo", "acme.com/is")] == [False, True, True]  # fmt: skip
    assert "hami.io/node-nvidia-register" in agent, "the others stay"


def test_without_the_policies_the_rights_stay():
    kinds = {o["kind"] for o in rendered({"policies": {"enabled": False}})}
    assert kinds == {"ServiceAccount", "ClusterRole", "ClusterRoleBinding"}


def test_two_releases_do_not_share_an_object_of_the_cluster():
    def cluster_wide(name):
        return {
            (o["kind"], o["metadata"]["name"])
            for o in rendered(name=name)
            if "namespace" not in o["metadata"]
        }

    assert cluster_wide("one").isdisjoint(cluster_wide("two"))


def test_its_version_is_the_program_s():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    program = re.search(
        r'__version__ = "(.*)"', Path(CHART.parents[1], "hami/__init__.py").read_text()
    )
    assert chart["appVersion"] == program[1]
