"""``hami demo`` and ``hami up`` as processes of their own: exit codes, signals, what is left."""

from __future__ import annotations

import base64
import io
import json
import os
import re
import signal
import ssl
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
import yaml
from hami_lab.cli.demo import print_demo, teller
from hami_lab.cli.up import agents_of
from hami_lab.cluster import EmbeddedCluster
from hami_lab.demo.enforced import MORE
from hami_lab.demo.run import DemoResult, StepResult
from hami_lab.demo.steps import Scenario
from hami_lab.kubelet import script
from rich.console import Console
from typer.testing import CliRunner

from hami.cli.app import app
from hami.simulate.result import Simulation
from hami.vendors.registry import load_vendors
from tests.installed import Point
from tests.shim.builds import build

ROOT = Path(__file__).parents[3]
COMMAND = [sys.executable, "-m", "hami"]
PATIENCE = 90


@pytest.fixture
def place(tmp_path, monkeypatch) -> Path:
    """Where temporary files of the command go; nothing may be left in it."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "tmp"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, timeout=PATIENCE, check=False
    )


def services_of(place: Path) -> list[int]:
    """Process ids of scheduler services whose files are in this folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if f"{place}/".encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue  # It ended while we looked.
    return found


def until(look, what: str):
    end = time.monotonic() + PATIENCE
    while not (found := look()):
        assert time.monotonic() < end, f"not in time: {what}"
        time.sleep(0.05)
    return found


@pytest.fixture
def library() -> None:
    """What the step ``enforced`` runs a program with."""
    build("")


@pytest.mark.usefixtures("library")
def test_the_demo_shows_every_step_and_ends_with_a_table_of_devices(place):
    result = run("demo")
    assert (result.returncode, result.stderr) == (0, ""), result.stdout + result.stderr
    assert len(re.findall(r"^(?:✓|ok) ", result.stdout, re.MULTILINE)) == 11
    assert re.search(r"train-4 was bound \d+ ms later", result.stdout)
    assert re.search(r"chat-1: environment CUDA_DEVICE_MEMORY_LIMIT_0=8192m ", result.stdout)
    assert re.search(r"chat-3: its limits page says 8192 MiB, 20 % of GPU-", result.stdout)
    # What a CUDA context takes of a card with 108 multiprocessors is charged from the start.
    assert "chat-1: its program holds 442 MiB, its CUDA context included" in result.stdout
    assert "chat-1: cuMemAlloc gives 7750 MiB in blocks, then CUDA_ERROR_OUT" in result.stdout
    assert "chat-1: cuMemAlloc gives 2048 MiB in blocks, then CUDA_ERROR_OUT" in result.stdout
    assert re.search(r"^  GPU-[0-9a-f-]{36} .* 5/10 slots$", result.stdout, re.MULTILINE)
    assert result.stdout.rstrip().endswith("all 11 steps held")
    assert "\x1b" not in result.stdout
    assert (list(place.iterdir()), services_of(place)) == ([], [])


@pytest.mark.usefixtures("library")
def test_the_demo_as_one_json_object(place):
    result = run("demo", "--json")
    assert (result.returncode, result.stderr) == (0, ""), result.stdout + result.stderr
    found = json.loads(result.stdout)
    assert found["held"] is True
    assert [step["name"] for step in found["steps"] if not step["held"]] == []
    assert {p["node"] for p in found["placements"]} == {"a100-1", "t4-1"}
    assert (
        sum(d["usedMemoryMiB"] for d in found["devices"]) == MORE + 2 * 8192 + 10240 + 3840 + 12000
    )


def a_step(name: str, *, problem: str = "", skipped: str = "") -> StepResult:
    title = f"step {name}"
    return StepResult(
        name=name, title=title, lines=(), problem=problem, skipped=skipped, seconds=0.04
    )


def shown(*steps: StepResult, encoding: str = "utf-8") -> list[str]:
    raw = io.BytesIO()
    console = Console(file=io.TextIOWrapper(raw, encoding=encoding, write_through=True), width=200)
    for step in steps:
        teller(console)(step)
    empty = Simulation(placed=(), pending=(), denied=(), devices=(), without_devices=0, warnings=())
    print_demo(console, DemoResult(steps=steps, picture=empty))
    return [line for line in raw.getvalue().decode(encoding).splitlines() if line]


@pytest.mark.parametrize(
    ("steps", "lines"),
    [
        ([a_step("a")], ["✓ step a 0.0 s", "all 1 steps held"]),
        (
            [a_step("a"), a_step("b", skipped="no compiler; get gcc")],
            [
                "✓ step a 0.0 s",
                "- step b 0.0 s",
                "    no compiler; get gcc",
                "1 of 2 steps held; 1 skipped: b (no compiler; get gcc)",
            ],
        ),
        (
            [a_step("a", problem="3 of 4"), a_step("b", skipped="no gcc")],
            [
                "✗ step a 0.0 s",
                "    3 of 4",
                "- step b 0.0 s",
                "    no gcc",
                "1 of 2 steps failed: step a; 1 skipped: b (no gcc)",
            ],
        ),
    ],
    ids=["held", "skipped", "failed"],
)
def test_a_step_that_was_skipped_is_not_ticked_and_the_last_line_says_why(steps, lines):
    assert shown(*steps) == lines


def test_a_skipped_step_has_a_mark_in_ascii_too():
    first, *_ = shown(a_step("b", skipped="no compiler"), encoding="ascii")
    assert first.startswith("skipped step b ")


def test_files_of_ones_own_are_applied_and_shown(place):
    folder = ROOT / "examples" / "quota"
    files = [f"--manifests={folder / name}" for name in ("workload.yaml", "cluster.yaml")]
    result = run("demo", *files)
    assert (result.returncode, result.stderr) == (1, ""), result.stdout + result.stderr
    assert "ResourceQuotaNotFit" in result.stdout
    assert ", 1 pending, 0 denied." in result.stdout


IGNORING = ("/bin/sh", "-c", 'trap "" INT; exec "$@"', "sh")
"""As in a background job of a script, or below some CI runners."""


def imports(process: subprocess.Popen[bytes]) -> bool:
    """The command is past Python's own start and loads its modules."""
    return "msgspec" in Path(f"/proc/{process.pid}/maps").read_text()


def begun(process: subprocess.Popen[bytes]) -> bool:
    return process.stdout.readline().startswith(b"starting an API server")


def halfway(process: subprocess.Popen[bytes]) -> bool:
    return process.stdout.readline().startswith("✓ three pods".encode())


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("started_by", [(), IGNORING], ids=["as a shell does", "SIGINT ignored"])
@pytest.mark.parametrize("moment", [imports, begun, halfway])
def test_ctrl_c_ends_the_demo_with_130_and_nothing_is_left(place, moment, started_by):
    process = subprocess.Popen(
        [*started_by, *COMMAND, "demo"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONIOENCODING": "utf-8", "PYTHONUNBUFFERED": "1"},
    )
    try:
        until(lambda: moment(process), moment.__name__)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, errors) == (130, b"")
    assert (list(place.iterdir()), services_of(place)) == ([], [])


def test_up_serves_kubectls_kubeconfig_until_ctrl_c(place):
    process = subprocess.Popen(
        [*COMMAND, "up", "--nodes", "t4x4:2", "--kubeconfig", "k.yaml"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        kubeconfig = Path("k.yaml")
        until(lambda: kubeconfig.exists() and kubeconfig.read_text(), "a kubeconfig")
        assert kubeconfig.stat().st_mode & 0o077 == 0
        config = yaml.safe_load(kubeconfig.read_text())
        names = [node["metadata"]["name"] for node in get(config, "/api/v1/nodes")["items"]]
        assert names == ["t4-1", "t4-2"]
        assert len(services_of(place)) == 1
        process.stdout.readline()
        said = "".join(iter(process.stdout.readline, "Ctrl-C ends it\n"))
        (server,) = re.findall("export HAMI_SERVER=(.*)", said)
        asked = run("quota", "--server", server)
        assert (asked.returncode, asked.stdout) == (0, "there are no elastic quotas\n")
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, errors) == (0, "")
    assert f"export KUBECONFIG={kubeconfig.absolute()}" in said + output
    assert not kubeconfig.exists()
    assert (list(place.iterdir()), services_of(place)) == ([], [])


def test_up_runs_agents_of_ones_own_and_profiles(place):
    run("plugin", "new", "--profile", "acme", ".")
    agent = "mock --mock-devices=mockx2"
    process = subprocess.Popen(
        [*COMMAND, "up", "--agent", agent, "--profiles", ".", "--kubeconfig", "k.yaml"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        kubeconfig = Path("k.yaml")
        until(lambda: kubeconfig.exists() and kubeconfig.read_text(), "a kubeconfig")
        (node,) = get(yaml.safe_load(kubeconfig.read_text()), "/api/v1/nodes")["items"]
        assert node["metadata"]["name"] == "mock-agent-1"
        assert node["status"]["allocatable"]["mock.hami.io/device"] == "20"
        assert "MOCK-node-1" in node["metadata"]["annotations"]["hami.io/node-mock-register"]
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, errors) == (0, "")
    assert "the log of the node agent of mock on mock-agent-1: /" in output
    assert services_of(place) == []


@pytest.mark.parametrize(
    ("text", "gpus", "flags"),
    [
        pytest.param("mock --mock-devices=mockx2", "", ["--mock-devices=mockx2"], id="none"),
        pytest.param("nvidia --simulated-gpus=t4x2", "t4x2", [], id="simulated"),
        pytest.param(
            "nvidia --simulated-gpus=t4 --nvidia-driver-root=/x --simulated-gpus=l4",
            "l4",
            ["--nvidia-driver-root=/x"],
            id="the last one counts",
        ),
    ],
)
def test_the_gpus_of_an_agent_are_the_laboratorys_and_not_its_flag(text, gpus, flags):
    (agent,) = agents_of([text], load_vendors())
    assert (agent.gpus, agent.flags) == (gpus, flags)


def test_up_runs_an_agent_on_simulated_gpus(place, library):
    agent = "nvidia --simulated-gpus=a100-40gx2,t4"
    process = subprocess.Popen(
        [*COMMAND, "up", "--agent", agent, "--kubeconfig", "k.yaml"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        kubeconfig = Path("k.yaml")
        until(lambda: kubeconfig.exists() and kubeconfig.read_text(), "a kubeconfig")
        (node,) = get(yaml.safe_load(kubeconfig.read_text()), "/api/v1/nodes")["items"]
        published = json.loads(node["metadata"]["annotations"]["hami.io/node-nvidia-register"])
        assert [gpu["type"] for gpu in published] == [
            "NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-40GB", "NVIDIA-Tesla T4"
        ]  # fmt: skip
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, errors) == (0, "")
    assert (list(place.iterdir()), services_of(place)) == ([], [])


def get(config, path: str):
    """As a client of the kubeconfig."""
    (cluster,), (user,) = config["clusters"], config["users"]
    authority = base64.b64decode(cluster["cluster"]["certificate-authority-data"]).decode()
    request = urllib.request.Request(
        cluster["cluster"]["server"] + path,
        headers={"Authorization": f"Bearer {user['user']['token']}"},
    )
    context = ssl.create_default_context(cadata=authority)
    with urllib.request.urlopen(request, context=context, timeout=10) as answer:
        return json.load(answer)


def test_a_service_that_dies_ends_up_with_its_last_lines(place):
    process = subprocess.Popen(
        [*COMMAND, "up", "--kubeconfig", "k.yaml"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        until(Path("k.yaml").exists, "a kubeconfig")
        (pid,) = services_of(place)
        os.kill(pid, signal.SIGKILL)
        _, errors = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 2
    assert "the scheduler service ended with signal SIGKILL; its last lines:" in errors
    assert list(place.iterdir()) == []


# What must be changed: exit code 2 and one line.


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["demo", "--manifests", "gone.yaml"], "gone.yaml: No such file"),
        (["up", "--nodes", "t4"], "nodes: 't4' is not <model>x<devices>:<nodes>"),
        (["up", "--agent", "'mock"], '--agent "\'mock" is not a vendor and its flags'),
        (["up", "--agent", "bolt"], "no installed plugin has the vendor 'bolt'"),
        (["up", "--profiles", "nowhere"], "profiles nowhere: No such file or directory"),
        (["up", "--nodes", "h999x8"], "there is no device profile 'h999'"),
        (["up", "--nodes", "t4x1", "--cluster", "c.yaml"], "--nodes and --cluster are both given"),
        (["up", "--kubeconfig", "mine.yaml"], "mine.yaml is there and was not written by hami up"),
        (["up", "--kubeconfig", "no/where.yaml"], "no/where.yaml: "),
    ],
)
def test_wrong_input_is_one_line_and_2(place, arguments, why):
    Path("mine.yaml").write_text("apiVersion: v1\nkind: Config\n")
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith("hami: error: ")
    assert why in result.stderr
    assert Path("mine.yaml").read_text() == "apiVersion: v1\nkind: Config\n"


def test_missing_plugins_are_named_with_the_remedy(install):
    points: list[Point] = []
    install(*points)
    result = CliRunner().invoke(app, ["demo"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert (
        "pip install -e . -e lab -e shim/simgpu -e plugins/nvidia -e plugins/mock" in result.stderr
    )


# docs/demo.md says what is so.

DOCUMENT = (ROOT / "docs" / "demo.md").read_text()


@pytest.mark.parametrize("command", ["demo", "up"])
def test_every_option_is_documented(command):
    section = DOCUMENT.partition(f"\n## hami {command}\n")[2].partition("\n## ")[0]
    shown = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "100"}).stdout
    options = set(re.findall(r"--[a-z][a-z-]+", shown)) - {"--help"}
    documented = set(re.findall(r"^`(--[a-z-]+)", section, re.MULTILINE))
    assert documented == options


def test_every_step_is_documented():
    rows = re.findall(r"^\| ([a-z]+) \| (.+) \|$", DOCUMENT, re.MULTILINE)
    steps = [(step.name, step.title) for step in Scenario(None).steps()]
    assert rows[1 : len(steps) + 1] == steps


def test_every_annotation_of_simulated_pods_is_documented():
    keys = {value for name, value in vars(script).items() if name.isupper()}
    assert keys == set(re.findall(r"^\| `(hami.io/sim-[a-z-]+)`", DOCUMENT, re.MULTILINE))


def test_the_methods_that_the_document_names_exist():
    named = re.findall(r"`([a-z_]+)`", DOCUMENT.partition("EmbeddedCluster`:")[2].partition(";")[0])
    assert named
    assert [name for name in named if not callable(getattr(EmbeddedCluster, name, None))] == []
