"""The containers' arguments and files are what the commands take."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import yaml
from typer.testing import CliRunner

import hami.cli.app as cli

from ..kubernetes.chart import EXAMPLES, example, rendered
from .objects import all_of, one, pod_of

CONFIG = "/etc/hami/config"


def settings(objects, workload, container, folder) -> dict[str, str]:
    """What the container's process would run with."""
    (volume,) = [v for v in pod_of(workload)["volumes"] if v["name"] == "config"]
    data = one(objects, "ConfigMap", volume["configMap"]["name"])["data"]
    for name, text in data.items():
        (folder / name).write_text(text)
    arguments = [argument.replace(CONFIG, str(folder)) for argument in container["args"]]
    environment: Mapping[str, str] = {
        variable["name"]: variable.get("value", "some-name") for variable in container["env"]
    }
    result = CliRunner().invoke(cli.app, [*arguments, "--print-config"], env=environment)
    assert result.exit_code == 0, result.stderr
    return yaml.safe_load(result.stdout)


def containers(values):
    objects = rendered(values)
    for workload in all_of(objects, "Deployment", "DaemonSet"):
        for container in pod_of(workload)["containers"]:
            if "args" in container and container["name"] != "kube-scheduler":
                yield objects, workload, container


@pytest.mark.parametrize("name", ["", *EXAMPLES])
def test_every_process_takes_its_arguments_and_its_files(name, tmp_path):
    found = 0
    for objects, workload, container in containers(example(name) if name else {}):
        settings(objects, workload, container, tmp_path)
        found += 1
    assert found == 3


def test_settings_in_the_values_are_those_of_the_process(tmp_path):
    chosen = {
        "scheduler": {"settings": {"gpu-scheduler-policy": "binpack"}},
        "node": {
            "devicePlugin": {"settings": {"identity": "lock"}},
            "monitor": {"settings": {"tick": "1s"}},
        },
    }
    got = {
        container["name"]: settings(objects, workload, container, tmp_path)
        for objects, workload, container in containers(chosen)
    }
    assert got["scheduler"]["gpu-scheduler-policy"] == "binpack"
    assert got["device-plugin"]["identity"] == "lock"
    assert got["monitor"]["tick"] == "1s"
