"""The commands of a move follow from what the cluster calls things."""

from __future__ import annotations

import json
import shlex

import pytest

from hami.migration.steps import LABEL, beside_values, naming_of, plan
from tests.migration.seeing import a_cluster, a_hook, a_plugin, a_workload

OTHER = {
    "app.kubernetes.io/instance": "gpu",
    "app.kubernetes.io/version": "2.10.0",
}


def naming(**changed):
    return naming_of(a_cluster(**changed), release="gpus", namespace="hami")


def commands(**changed):
    return [line for step in plan(naming(**changed)) for line in (*step.commands, *step.back)]


def test_names_are_those_of_the_cluster():
    n = naming(
        schedulers=[a_workload("gpu-hami-scheduler", metadata__namespace="gpu", metadata__labels=OTHER, spec__replicas=3)],
        plugins=[a_plugin(metadata__name="gpu-hami-device-plugin", metadata__namespace="gpu", spec__updateStrategy={"type": "OnDelete"})],
    )  # fmt: skip
    assert (n.hami_release, n.hami_namespace, n.replicas) == ("gpu", "gpu", 3)
    assert (n.scheduler, n.plugin, n.strategy) == ("gpu-hami-scheduler", "gpu-hami-device-plugin", {"type": "OnDelete"})  # fmt: skip


def test_without_its_objects_the_usual_names_are_taken():
    n = naming(schedulers=[], plugins=[], hook=None)
    assert (n.hami_release, n.scheduler, n.plugin) == ("hami", "hami-scheduler", "hami-device-plugin")  # fmt: skip


@pytest.mark.parametrize("policy", ["Fail", "Ignore"])
def test_a_webhook_that_stops_pods_is_opened_before_and_closed_on_the_way_back(policy):
    step = plan(naming(hook=a_hook(policy)))[1]
    opened = [line for line in step.commands if "failurePolicy" in line]
    closed = [line for line in step.back if "failurePolicy" in line]
    assert (len(opened), len(closed)) == ((1, 1) if policy == "Fail" else (0, 0))
    if opened:
        assert step.commands[0] == opened[0]
        assert json.loads(shlex.split(opened[0])[-1])[0]["value"] == "Ignore"
        assert json.loads(shlex.split(closed[0])[-1])[0]["value"] == "Fail"


def test_every_command_is_one_that_a_shell_can_read():
    for line in commands(hook=a_hook("Fail")):
        assert shlex.split(line)[0] in ("kubectl", "helm", "hami")


def test_the_daemonset_goes_back_to_what_it_was():
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%"}}
    step = plan(naming(plugins=[a_plugin(spec__updateStrategy=strategy)]))[2]
    there, back = (json.loads(shlex.split(line)[-1])["spec"] for line in (*step.commands, *step.back))  # fmt: skip
    assert there["updateStrategy"] == {"type": "OnDelete", "rollingUpdate": None}
    assert LABEL in json.dumps(there["template"])
    assert back == {"updateStrategy": strategy, "template": {"spec": {"affinity": None}}}


def test_a_node_has_nobody_between_the_two():
    step = plan(naming())[3]
    for lines in (step.commands, step.back):
        labels = [line.split("NODE ")[1] for line in lines if line.startswith("kubectl label")]
        assert labels[0].startswith(f"{LABEL}=none")
        assert len(labels) == 2
    assert step.each_node


def test_hamis_accounts_may_write_while_both_are_there():
    assert beside_values(naming())["policies"]["trustedUsers"] == [
        "system:serviceaccount:kube-system:hami-scheduler",
        "system:serviceaccount:kube-system:hami-device-plugin",
    ]
