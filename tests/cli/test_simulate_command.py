"""``hami simulate`` as people and scripts use it: outputs, exit codes, every bad input."""

from __future__ import annotations

import json
import os

import pytest
from typer.testing import CliRunner

import hami.cli.app as cli
from hami import __version__
from hami.cli.commands import simulate as simulating

CLUSTER = """\
apiVersion: v1
kind: Node
metadata:
  name: gpu-1
  annotations: {mock.hami.io/devices: "t4x1"}
"""
WORKLOAD = """\
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  containers:
  - name: main
    resources:
      limits: {nvidia.com/gpu: 1, nvidia.com/gpumem: %s, nvidia.com/gpucores: 30}
"""


def pod(name: str = "a", memory: object = 1000) -> str:
    return WORKLOAD % (name, memory)


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes a file into an empty working directory; returns its name."""
    monkeypatch.chdir(tmp_path)

    def to(name: str, content: str | bytes) -> str:
        data = content.encode() if isinstance(content, str) else content
        (tmp_path / name).write_bytes(data)
        return name

    return to


def hami(*arguments: str):
    return CliRunner().invoke(cli.app, list(arguments), env={"COLUMNS": "80"})


@pytest.mark.parametrize(
    ("pods", "code"),
    [
        pytest.param([pod()], 0, id="everything is placed"),
        pytest.param([], 0, id="there is nothing to place"),
        pytest.param([pod(memory=99000)], 1, id="a pod stays pending"),
        pytest.param([pod(memory="500M")], 1, id="a pod is denied"),
        pytest.param([pod("a"), pod("b", 99000)], 1, id="one of two stays pending"),
    ],
)
def test_the_exit_code_says_that(write, pods, code):
    result = hami("simulate", write("c.yaml", CLUSTER), write("w.yaml", "---\n".join(pods)))
    assert result.exit_code == code


def test_the_json_object_is_alone_on_stdout(write):
    noise = "---\napiVersion: v1\nkind: Service\nmetadata: {name: s}\n"
    files = [write("c.yaml", CLUSTER), write("w.yaml", pod() + noise)]
    result = hami("simulate", *files, "--json")
    assert json.loads(result.stdout) == {
        "placements": [
            {
                "pod": "default/a",
                "node": "gpu-1",
                "containers": [
                    {
                        "name": "main",
                        "init": False,
                        "devices": [
                            {
                                "id": "GPU-gpu-1-0",
                                "vendor": "NVIDIA",
                                "memoryMiB": 1000,
                                "cores": 30,
                                "extra": {},
                            }
                        ],
                    }
                ],
            }
        ],
        "pending": [],
        "denied": [],
        "devices": [
            {
                "node": "gpu-1",
                "id": "GPU-gpu-1-0",
                "vendor": "NVIDIA",
                "model": "NVIDIA-Tesla T4",
                "memoryMiB": 15360,
                "usedMemoryMiB": 1000,
                "cores": 100,
                "usedCores": 30,
                "slots": 10,
                "usedSlots": 1,
            }
        ],
    }
    assert result.stderr.startswith("hami: warning: w.yaml:10: Service default/s is skipped")


@pytest.mark.parametrize(
    ("policy", "nodes"),
    [
        pytest.param([], {"gpu-1"}, id="packed by default"),
        pytest.param(["--policy", "binpack/spread"], {"gpu-1"}, id="packed nodes"),
        pytest.param(["--policy", "spread/binpack"], {"gpu-1", "gpu-2"}, id="spread nodes"),
        pytest.param(["--policy", "spread"], {"gpu-1", "gpu-2"}, id="one word for both"),
        pytest.param(
            ["--policy", "spread/numa,mutex"], {"gpu-1", "gpu-2"}, id="a chain for devices"
        ),
    ],
)
def test_the_policy_chooses_nodes(write, policy, nodes):
    cluster = CLUSTER + "---\n" + CLUSTER.replace("gpu-1", "gpu-2")
    files = [write("c.yaml", cluster), write("w.yaml", pod("a") + "---\n" + pod("b"))]
    result = hami("simulate", *files, "--json", *policy)
    assert {p["node"] for p in json.loads(result.stdout)["placements"]} == nodes


def test_the_device_policy_chooses_devices(write):
    files = [
        write("c.yaml", CLUSTER.replace("t4x1", "t4x2")),
        write("w.yaml", pod("a") + "---\n" + pod("b")),
    ]

    def devices(policy: str) -> int:
        placed = json.loads(hami("simulate", *files, "--json", "--policy", policy).stdout)
        return len({p["containers"][0]["devices"][0]["id"] for p in placed["placements"]})

    assert (devices("binpack/binpack"), devices("binpack/spread")) == (1, 2)


def test_the_device_configuration_reaches_the_vendors(write):
    config = write("device.yaml", "nvidia: {resourceCountName: example.com/gpu}")
    workload = pod().replace("nvidia.com/gpu:", "example.com/gpu:")
    files = [write("c.yaml", CLUSTER), write("w.yaml", workload)]
    result = hami("simulate", *files, "--device-config", config)
    assert "1 placed" in result.stdout


def refused(*arguments: str) -> str:
    """The message of a command that ends with 2 and prints nothing else."""
    result = hami(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("hami: error: ")
    return lines[0].removeprefix("hami: error: ")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param("a: b: c", "w.yaml:1: this is not valid YAML", id="broken YAML"),
        pytest.param("just words", "w.yaml:1: this is no Kubernetes object", id="words"),
        pytest.param(b"a: \xff", "w.yaml: byte 3 is not UTF-8; save the file", id="Latin-1"),
        pytest.param("a: \x00", "w.yaml: this is not valid YAML", id="a NUL byte"),
        pytest.param("kind: Pod", "w.yaml:1: Pod has no metadata.name", id="no name"),
        pytest.param(pod() + "---\n" + pod(), "Pod default/a: is there twice", id="twice"),
        pytest.param(pod(memory="true"), "limits[nvidia.com/gpumem] is true", id="a boolean"),
        pytest.param(
            CLUSTER.replace('"t4x1"', "true").replace("gpu-1", "gpu-2"),
            "Node gpu-2: metadata.annotations[mock.hami.io/devices] is true",
            id="an unquoted annotation",
        ),
        pytest.param(
            CLUSTER.replace("t4x1", "t5000x1").replace("gpu-1", "gpu-2"),
            "t5000",
            id="no such model",
        ),
        pytest.param(
            "kind: ResourceQuota\nmetadata: {name: q}\nspec: {hard: {limits.nvidia.com/gpu: two}}",
            "ResourceQuota default/q: spec.hard[limits.nvidia.com/gpu]: 'two' is not a quantity",
            id="a bad quota",
        ),
    ],
)
def test_a_file_is_refused_for(write, content, message):
    assert message in refused("simulate", write("c.yaml", CLUSTER), write("w.yaml", content))


def test_a_missing_file_is_named(write):
    message = refused("simulate", write("c.yaml", CLUSTER), "gone.yaml")
    assert message == "gone.yaml: No such file or directory; name a readable file"


def test_a_directory_is_no_file(tmp_path):
    assert "Is a directory; name a readable file" in refused("simulate", str(tmp_path))


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_an_unreadable_file_is_named(tmp_path, write):
    (tmp_path / write("secret.yaml", CLUSTER)).chmod(0)
    assert "Permission denied" in refused("simulate", "secret.yaml")


@pytest.mark.parametrize(
    "policy", ["fast", "binpack/", "/spread", "binpack/spread/numa", "numa", "binpack/numa,", ""]
)
def test_an_unknown_policy_lists_the_choices(write, policy):
    message = refused("simulate", write("c.yaml", CLUSTER), "--policy", policy)
    assert (
        "NODE is binpack or spread, DEVICE one or several (with commas) of binpack, spread"
        in message
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param("- nvidia", "is no mapping; write sections", id="a list"),
        pytest.param("a: 1\n---\nb: 2", "holds 2 documents; write one", id="two documents"),
        pytest.param("nvidia: {defaultMemory: lots}", "lots", id="a value that a plugin refuses"),
    ],
)
def test_a_device_configuration_is_refused_for(write, content, message):
    files = [write("c.yaml", CLUSTER), "--device-config", write("d.yaml", content)]
    assert message in refused("simulate", *files)


def test_no_files_is_a_usage_error():
    result = hami("simulate")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Missing argument" in result.stderr


def test_an_interrupt_ends_quietly(write, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(simulating, "simulate", interrupted)
    result = hami("simulate", write("c.yaml", CLUSTER))
    assert (result.exit_code, result.output) == (130, "")


def test_a_failing_plugin_is_warned_about_once_and_refuses_its_pods(write):
    cluster = CLUSTER.replace(
        '{mock.hami.io/devices: "t4x1"}',
        '{mock.hami.io/devices: "mockx2", mock.hami.io/fail: "hami_charge=raise"}',
    )
    limits = "{mock.hami.io/device: 1}"
    workload = pod().partition("      limits:")[0] + f"      limits: {limits}\n"
    pods = workload + "---\n" + workload.replace("name: a", "name: b")
    result = hami("simulate", write("c.yaml", cluster), write("w.yaml", pods))
    assert result.exit_code == 1
    assert result.stderr.count("hami: warning: hami-mock: hami_fit of vendor MOCK failed") == 1
    assert "VendorError" in result.stdout


def test_the_version_is_printed():
    assert hami("--version").stdout == f"hami {__version__}\n"


# Standard input.


def hami_with_input(given: str, *arguments: str):
    return CliRunner().invoke(cli.app, list(arguments), input=given)


def test_a_dash_is_standard_input(write):
    result = hami_with_input(pod(), "simulate", write("c.yaml", CLUSTER), "-")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "1 placed" in result.stdout


def test_standard_input_has_a_name_in_messages():
    result = hami_with_input("a: b: c", "simulate", "-")
    assert result.stderr.startswith("hami: error: <stdin>:1: this is not valid YAML")


@pytest.mark.parametrize("more", [["-"], ["--device-config", "-"]], ids=["a file", "an option"])
def test_standard_input_is_read_once(more):
    result = hami_with_input(CLUSTER, "simulate", "-", *more)
    assert result.exit_code == 2
    assert "standard input can be read once; leave one out" in result.stderr


# Texts that would command the terminal.


def test_control_characters_are_shown_in_errors_once(write):
    bad = CLUSTER.replace('"t4x1"', r'"\e[31m"')
    message = refused("simulate", write("c.yaml", bad))
    assert "\x1b" not in message
    assert r"\x1b[31m" in message
    assert r"\\x1b" not in message


def test_control_characters_are_shown_in_warnings(write):
    other = r'kind: "Se\erv\u2028ice"' + "\nmetadata: {name: s}\n"
    result = hami("simulate", write("c.yaml", CLUSTER), write("w.yaml", other))
    assert r"Se\x1brv\u2028ice" in result.stderr
    assert "\x1b" not in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_control_characters_are_shown_in_tables(write):
    named = pod().replace("name: main", r'name: "ma\ein\x9b"')
    denied = pod("b", '"5\\e0"')
    files = [write("c.yaml", CLUSTER), write("w.yaml", named + "---\n" + denied)]
    result = hami("simulate", *files)
    assert r"ma\x1bin\x9b" in result.stdout
    assert r"5\x1b0" in result.stdout
    assert not {"\x1b", "\x9b"} & set(result.stdout)


# A reader that is no terminal.


def test_nothing_is_folded_for_a_program(write):
    long = "inference-service-of-a-very-long-name-indeed-" * 3 + "1"
    cluster = CLUSTER.replace("gpu-1", "gpu-" + "x" * 50)
    pods = "---\n".join([pod(long), pod("waits", 99000), pod("denied", "x")])
    result = hami("simulate", write("c.yaml", cluster), write("w.yaml", pods))
    (row,) = (line for line in result.stdout.splitlines() if long in line)
    assert row.split()[:4] == [
        f"default/{long}",
        "gpu-" + "x" * 50,
        "main",
        f"GPU-gpu-{'x' * 50}-0",
    ]
    assert max(map(len, result.stdout.splitlines())) < 400
