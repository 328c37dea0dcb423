"""The real command in a process of its own: streams, signals, and what nobody expected."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys

import pytest

CLUSTER = """\
kind: Node
metadata:
  name: gpu-1
  annotations: {mock.hami.io/devices: "t4x64"}
---
"""
POD = """\
kind: Pod
metadata: {name: %s}
spec: {containers: [{name: main, resources: {limits: {nvidia.com/gpu: 1, nvidia.com/gpumem: %s}}}]}
---
"""
COMMAND = [sys.executable, "-m", "hami"]


@pytest.fixture
def files(tmp_path, monkeypatch) -> list[str]:
    """A cluster that 300 pods fill and one waits for: more output than a pipe holds."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.yaml").write_text(CLUSTER)
    pods = "".join(POD % (f"p{n}", 1) for n in range(300))
    (tmp_path / "w.yaml").write_text(pods + POD % ("waits", 99000))
    return ["c.yaml", "w.yaml"]


def run(*arguments: str, **options):
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    return subprocess.run([*COMMAND, *arguments], timeout=60, check=False, **options)


def shell(command: str):
    """In bash, which has pipefail; $HAMI is the command."""
    hami = {"HAMI": f"{sys.executable} -m hami"}
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"],
        capture_output=True,
        timeout=60,
        check=False,
        env=os.environ | hami,
    )


def test_the_module_runs_as_the_command_does(files):
    result = run("simulate", *files)
    assert (result.returncode, result.stderr) == (1, b"")
    assert b"300 placed, 1 pending" in result.stdout
    assert b"\x1b" not in result.stdout


@pytest.mark.parametrize("reader", ["true", "head -1 > first"])
@pytest.mark.parametrize("option", ["", "--json"], ids=["tables", "json"])
def test_a_reader_that_goes_away_changes_nothing(files, reader, option):
    result = shell(f"$HAMI simulate {' '.join(files)} {option} | {reader}")
    assert (result.returncode, result.stderr) == (1, b"")


@pytest.mark.parametrize("option", ["--help", "--version", "plugins"])
def test_a_reader_that_goes_away_is_no_error(option):
    result = shell(f"$HAMI {option} | true")
    assert (result.returncode, result.stderr) == (0, b"")


@pytest.mark.parametrize(
    "option", [["simulate", "c.yaml"], ["--version"]], ids=["tables", "version"]
)
def test_a_full_disk_is_one_line_and_74(files, option):
    with open("/dev/full", "wb") as full:  # noqa: PTH123 -- a device, not a file
        result = run(*option, stdout=full)
    assert result.returncode == 74
    assert result.stderr == (
        b"hami: error: cannot write the output: No space left on device; write it elsewhere\n"
    )


@pytest.mark.parametrize("closed", [">&-", ">&- 2>&-", "2>&- >/dev/null", "2>/dev/full >/dev/null"])
def test_closed_or_full_streams_keep_the_exit_code(files, closed):
    result = shell(f"$HAMI simulate {' '.join(files)} gone.yaml {closed}")
    assert result.returncode == 2
    result = shell(f"$HAMI simulate {' '.join(files)} {closed}")
    assert (result.returncode, result.stdout, result.stderr) == (1, b"", b"")


def test_an_ascii_output_has_ascii_tables_and_the_same_json(files):
    ascii_only = os.environ | {"PYTHONIOENCODING": "ascii"}
    model = CLUSTER.replace('"t4x64"', '"oddx1"')
    with open("odd.yaml", "w") as file:  # noqa: PTH123 -- in the working directory
        file.write(model)
    with open("d.yaml", "w", encoding="utf-8") as file:  # noqa: PTH123
        file.write("mock: {profiles: {odd: {vendor: NVIDIA, model: Größe, memoryMiB: 9}}}")
    arguments = ["simulate", "odd.yaml", "--device-config", "d.yaml"]
    result = run(*arguments, env=ascii_only)
    assert (result.returncode, result.stderr) == (0, b"")
    assert rb"gpu-1: 1 x Gr\xf6\xdfe" in result.stdout
    assert b".......... 0/9 MiB" in result.stdout
    result = run(*arguments, "--json", env=ascii_only)
    assert json.loads(result.stdout)["devices"][0]["model"] == "Größe"


def test_a_terminal_gets_lines_of_its_width(files):
    master, terminal = pty.openpty()
    wide = os.environ | {"COLUMNS": "60", "TERM": "xterm"}
    process = subprocess.Popen(
        [*COMMAND, "simulate", "c.yaml"], stdout=terminal, stderr=terminal, env=wide
    )
    os.close(terminal)
    text = b""
    try:
        while block := os.read(master, 65536):
            text += block
    except OSError:  # Linux' way to say that the other end is closed
        pass
    os.close(master)
    assert process.wait(timeout=60) == 0
    assert b"  GPU-gpu-1-0\r\n    " in text


# Ctrl-C.


def test_the_interrupt_signal_ends_the_process_with_130(files):
    os.mkfifo("pipe")
    process = subprocess.Popen(
        [*COMMAND, "simulate", "c.yaml", "pipe"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    # The command waits for somebody to write into the pipe: it is certainly reading its files.
    with open("pipe", "wb"):  # noqa: PTH123 -- a pipe, in the working directory
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)
    assert (process.returncode, output, errors) == (130, b"", b"")


def with_module(tmp_path, name: str, source: str) -> dict[str, str]:
    """An environment in which ``name`` is this module."""
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / f"{name}.py").write_text(source)
    return os.environ | {"PYTHONPATH": str(tmp_path / "modules")}


def test_an_interrupt_during_the_imports_is_as_quiet(tmp_path):
    # A library may catch what an interrupt raises.
    interrupted = """
import os, signal
try:
    os.kill(os.getpid(), signal.SIGINT)
except BaseException as error:
    raise ImportError("broken") from error
"""
    result = run("--version", env=with_module(tmp_path, "typer", interrupted))
    assert (result.returncode, result.stdout, result.stderr) == (130, b"", b"")


# Bugs of ours.


@pytest.mark.parametrize("debug", [False, True], ids=["alone", "with a traceback on demand"])
def test_an_unexpected_error_is_one_line_and_70(tmp_path, debug):
    broken = "raise ZeroDivisionError('by \\x1b[31m\\nzero')"
    environment = with_module(tmp_path, "typer", broken) | ({"HAMI_DEBUG": "1"} if debug else {})
    result = run("--version", env=environment)
    *traceback, line = result.stderr.decode().splitlines()
    assert (result.returncode, result.stdout) == (70, b"")
    assert line == (
        r"hami: internal error: ZeroDivisionError: by \x1b[31m zero; please report it, with what "
        "HAMI_DEBUG=1 prints"
    )
    assert any("Traceback" in one for one in traceback) == debug
    assert bool(traceback) == debug


AS_HAMI = "import sys; sys.argv = ['hami']; from hami.cli.main import main; main()"
"""The installed command: a shell completes a name, not ``python -m hami``."""


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        pytest.param("hami si", ["simulate"], id="a command"),
        pytest.param("hami device-pl", ["device-plugin"], id="one that is made late"),
        pytest.param("hami plugin n", ["new"], id="a command of a command"),
        pytest.param("hami quota --na", ["--namespace"], id="a flag"),
        pytest.param("hami device-plugin --vend", ["--vendor"], id="a setting's flag"),
    ],
)
def test_a_shell_completes(typed, offered):
    words = {"COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1)}
    done = subprocess.run(
        [sys.executable, "-c", AS_HAMI],
        env=os.environ | words | {"_HAMI_COMPLETE": "complete_bash"},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.stdout.split() == offered, done.stderr
