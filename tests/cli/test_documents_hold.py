"""README, docs/simulate.md and docs/pods.md say what is so."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import pytest
import yaml
from hami_mock import settings as mock_settings
from hami_mock.catalog import builtin_catalog
from typer.testing import CliRunner

from hami.cli import app as cli
from hami.cli import main as process
from hami.cli.terminal import messages as answering
from hami.domain import reasons
from hami.simulate.manifests import read_manifests

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
SIMULATE = (ROOT / "docs" / "simulate.md").read_text()
PODS = (ROOT / "docs" / "pods.md").read_text()
MAKEFILE = (ROOT / "Makefile").read_text()


def hami(*arguments: str):
    return CliRunner().invoke(cli.app, list(arguments), env={"COLUMNS": "80"})


def test_the_readme_shows_what_simulate_prints(monkeypatch):
    """README as a picture, of the command above it; docs/simulate.md as text."""
    monkeypatch.chdir(ROOT)
    (command,) = re.findall(r"^    \.venv/bin/hami (simulate .*)$", README, re.MULTILINE)
    assert "](docs/simulate.svg)" in README.partition(command)[2]
    printed = hami(*command.split()).stdout
    lines = [line.rstrip() for line in printed.splitlines()]
    assert f"\n    hami {command}\n" in SIMULATE
    (shown,) = re.findall(r"-->\n```\n(.*?)\n```", SIMULATE, re.DOTALL)
    assert shown == "\n".join(lines).strip("\n")


def test_the_picture_is_of_a_run_of_now():
    spec = importlib.util.spec_from_file_location("picture", ROOT / "docs" / "picture.py")
    picture = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(picture)
    assert picture.PICTURE.read_text() == picture.drawn(), "run `make picture`"


@pytest.mark.parametrize("text", [README, PODS], ids=["README", "pods.md"])
def test_the_readmes_pod_is_placed(tmp_path, text):
    (pod,) = re.findall(r"```yaml\n(apiVersion: v1\nkind: Pod\n.*?)```", text, re.DOTALL)
    (tmp_path / "pod.yaml").write_text(pod)
    result = hami("simulate", str(ROOT / "examples/demo/cluster.yaml"), str(tmp_path / "pod.yaml"))
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    assert "1 placed, 0 pending, 0 denied." in result.stdout


RESOURCES = {"nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpumem-percentage"}
WHAT_IT_WRITES = re.findall(r"^\| (a .*|half .*|8 .*) \| (.*) \|$", PODS, re.MULTILINE)


@pytest.mark.parametrize("wish", [pytest.param(text, id=wish) for wish, text in WHAT_IT_WRITES])
def test_what_a_pod_may_write_is_placed(tmp_path, wish):
    said = [line.split(": ") for line in re.findall(r"`(.*?)`", wish)]
    limits = {key: text for key, text in said if key in RESOURCES}
    annotations = {key: text for key, text in said if key not in limits}
    spec = {
        "containers": [{"name": "main", "resources": {"limits": limits or {"nvidia.com/gpu": 1}}}]
    }
    pod = {"kind": "Pod", "metadata": {"name": "a", "annotations": annotations}, "spec": spec}
    (tmp_path / "pod.yaml").write_text(yaml.safe_dump(pod))
    result = hami("simulate", str(ROOT / "examples/demo/cluster.yaml"), str(tmp_path / "pod.yaml"))
    assert (result.exit_code, result.stderr) == (0, ""), result.output


def test_every_reason_why_a_pod_waits_is_explained():
    words = {one.word for one in vars(reasons).values() if isinstance(one, reasons.Reason)}
    table = PODS.partition("| reason |")[2]
    assert sorted(re.findall(r"^\| `(.+?)` \|", table, re.MULTILINE)) == sorted(words)


def test_the_refusal_that_is_shown_is_one(tmp_path):
    (shown,) = re.findall(r"^0/2 nodes are available: .*$", PODS, re.MULTILINE)
    nodes = "".join(NODE % pair for pair in [("a100-1", "a100-40gx1"), ("t4-1", "t4x4")])
    pod = POD % ("chat", 90000)
    pod = pod.replace("{name: chat}", "{name: chat, annotations: {nvidia.com/use-gputype: A100}}")
    (tmp_path / "all.yaml").write_text(nodes + pod.removeprefix("---\n"))
    (pending,) = json.loads(hami("simulate", str(tmp_path / "all.yaml"), "--json").stdout)[
        "pending"
    ]
    assert pending["message"] == shown


def shape(value):
    """Keys and types, with lists by their first item."""
    match value:
        case dict():
            free = {"reasons", "extra"}
            return {k: {} if k in free else shape(v) for k, v in value.items()}
        case list():
            return [shape(item) for item in value[:1]]
        case _:
            return type(value).__name__


NODE = 'kind: Node\nmetadata: {name: %s, annotations: {mock.hami.io/devices: "%s"}}\n---\n'
CLUSTER = 'kind: Node\nmetadata: {name: gpu-1, annotations: {mock.hami.io/devices: "t4x1"}}\n'
POD = """---
kind: Pod
metadata: {name: %s}
spec: {containers: [{name: main, resources: {limits: {nvidia.com/gpu: 1, nvidia.com/gpumem: %s}}}]}
"""


def test_the_json_object_is_the_documented_one(tmp_path):
    (tmp_path / "all.yaml").write_text(
        CLUSTER + POD % ("a", 1000) + POD % ("b", 99000) + POD % ("c", "x")
    )
    printed = hami("simulate", str(tmp_path / "all.yaml"), "--json").stdout
    (documented,) = re.findall(r"```json\n(.*?)\n```", SIMULATE, re.DOTALL)
    assert shape(json.loads(printed)) == shape(json.loads(documented))


def test_every_option_is_documented():
    options = set(re.findall(r"--[a-z][a-z-]+", hami("simulate", "--help").stdout)) - {"--help"}
    assert options == set(re.findall(r"^`(--[a-z-]+)", SIMULATE, re.MULTILINE))


def test_every_exit_code_is_documented():
    table = re.findall(r"^\| (\d+) \|", SIMULATE, re.MULTILINE)
    codes = [0, cli.NOT_PLACED, answering.BAD_INPUT]
    codes += [process.INTERNAL, process.UNWRITABLE, process.INTERRUPTED]
    assert table == list(map(str, codes))


def test_the_documented_device_profiles_work(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    section = SIMULATE.partition("### Devices of your own")[2].partition("\n### ")[0]
    config, cluster = re.findall(r"```yaml\n(.*?)```", section, re.DOTALL)
    (tmp_path / "devices.yaml").write_text(config)
    (tmp_path / "cluster.yaml").write_text(cluster)
    (command,) = re.findall(r"^    hami (.*)$", section, re.MULTILINE)
    result = hami(*command.split(), "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    devices = [
        (d["model"], d["memoryMiB"], d["slots"]) for d in json.loads(result.stdout)["devices"]
    ]
    assert devices == [("NVIDIA H20", 97871, 10)] * 4 + [("NVIDIA A2", 15356, 4)]


def test_the_documented_vendors_of_your_own_work(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    section = SIMULATE.partition("### Vendors of your own")[2].partition("\n### ")[0]
    profile, cluster, models = re.findall(r"```yaml\n(.*?)```", section, re.DOTALL)
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles" / "amd.yaml").write_text(profile)
    (tmp_path / "cluster.yaml").write_text(cluster)
    (command,) = re.findall(r"^    hami (.*)$", section, re.MULTILINE)
    result = hami(*command.split(), "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    (placed,) = json.loads(result.stdout)["placements"]
    assert placed["containers"][0]["devices"][0]["memoryMiB"] == 65536
    assert mock_settings.read_settings(yaml.safe_load(models)).profiles["x1"].vendor == "ACME"


def test_the_section_that_the_mock_plugin_shows_is_one():
    shown = mock_settings.__doc__.partition("\n\n")[2]
    settings = mock_settings.read_settings(yaml.safe_load(shown))
    assert settings.profiles["x1"].vendor == "ACME"
    assert settings.fail == {"hami_enforce": "raise", "hami_measure": "slow"}


def test_every_kind_that_is_read_is_documented():
    warned = read_manifests([("x.yaml", "kind: Other\nmetadata: {name: x}")]).warnings[0]
    known = warned.partition("reads ")[2].split(", ")
    table = re.findall(r"^\| ([A-Z][\w, ]+) \|", SIMULATE, re.MULTILINE)
    assert sorted(known) == sorted(", ".join(table).split(", "))


@pytest.mark.parametrize("text", [README, CONTRIBUTING], ids=["README", "CONTRIBUTING"])
def test_every_make_target_exists(text):
    targets = set(re.findall(r"^([a-z]+):.*## ", MAKEFILE, re.MULTILINE))
    assert set(re.findall(r"`make ([a-z]+)`", text)) <= targets


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_every_link_within_the_repository_leads_somewhere(name):
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", (ROOT / name).read_text())
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


@pytest.mark.parametrize("text", [README, SIMULATE], ids=["README", "simulate.md"])
def test_no_line_of_prose_is_wider_than_the_rest(text):
    prose = [line for line in text.splitlines() if not line.startswith("|")]
    assert [line for line in prose if len(line) > 104] == []


def test_every_path_of_the_readmes_layout_exists():
    table = README.partition("## Work on hami")[2]
    paths = re.findall(r"`((?:hami|plugins)/[\w./]*)`", table)
    assert paths
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_the_models_are_those_of_the_catalogue():
    _, _, after = SIMULATE.partition("The models: ")
    listed, _, _ = after.partition(". `gaudi3`")
    assert re.findall(r"`([^`]+)`", listed) == sorted(builtin_catalog().profiles)
