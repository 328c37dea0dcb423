"""``hami scheduler``: its flags, its messages, its signals, and what docs/scheduler.md says."""

from __future__ import annotations

import json
import logging
import re
import signal
import subprocess
import sys
import types
from pathlib import Path

import pytest
import structlog
import yaml
from typer.testing import CliRunner

from hami.cli import app as cli
from hami.cli.commands.scheduler_options import FOREIGN
from hami.cli.flags.go_flags import Flag, rewritten
from hami.domain.errors import ConfigError
from hami.scheduler.settings.config import SchedulerConfig
from hami.scheduler.settings.config_source import FLAG_FIELDS, SCHEDULER
from hami.scheduler.settings.hami_flags import SWITCHES
from hami.settings.model import key_of

ROOT = Path(__file__).parents[2]


def hami(*arguments: str, **environment: str):
    return CliRunner().invoke(
        cli.app, ["scheduler", *arguments], env={"COLUMNS": "80"} | environment
    )


def printed(*arguments: str, **environment: str) -> dict:
    result = hami("--print-config", *arguments, **environment)
    assert (result.exit_code, result.stderr) == (0, "")
    return yaml.safe_load(result.stdout)


# Flags.


def test_every_setting_is_a_flag_and_a_variable():
    assert set(printed()) == {key_of(name) for name in FLAG_FIELDS} | {"devices"}
    assert printed(HAMI_SCHEDULER_LEADER_ELECT="true")["leader-elect"] is True
    text = hami("--help").stdout
    assert set(re.findall(r"^ +(--[a-z-]+)", text, re.MULTILINE)) >= {
        f"--{key_of(name)}" for name in FLAG_FIELDS
    }


@pytest.mark.parametrize(
    ("arguments", "changed"),
    [
        (["--http_bind=127.0.0.1:0"], {"http-bind": "127.0.0.1:0"}),
        (["--http_bind", "127.0.0.1:0"], {"http-bind": "127.0.0.1:0"}),
        (["-http_bind=127.0.0.1:0"], {"http-bind": "127.0.0.1:0"}),
        (
            ["--cert_file=/tls/tls.crt", "--key_file=/tls/tls.key"],
            {"cert-file": "/tls/tls.crt", "key-file": "/tls/tls.key"},
        ),
        (["--leader-elect"], {"leader-elect": True}),
        (["--leader-elect=true"], {"leader-elect": True}),
        (["--leader-elect=1"], {"leader-elect": True}),
        (["--leader-elect=false"], {"leader-elect": False}),
        (["--no-leader-elect"], {"leader-elect": False}),
        (
            ["--force-overwrite-default-scheduler=false"],
            {"force-overwrite-default-scheduler": False},
        ),
        (["--node-lock-timeout=90s"], {"node-lock-timeout": "1m30s"}),
        (["--dcu-name=x.com/d"], {"devices": {"hygon": {"resourceCountName": "x.com/d"}}}),
        (["--sgpu-topology-aware=true"], {"devices": {"metax": {"sgpuTopologyAware": True}}}),
    ],
)
def test_flags_are_written_as_hamis_manifests_write_them(arguments, changed):
    assert printed(*arguments) == printed() | changed


CHART = """
--http_bind=127.0.0.1:443 --cert_file=/tls/tls.crt --key_file=/tls/tls.key
--scheduler-name=hami-scheduler --metrics-bind-address=:9395 --node-scheduler-policy=binpack
--gpu-scheduler-policy=spread --force-overwrite-default-scheduler=true --leader-elect=true
--leader-elect-resource-name=hami-scheduler --leader-elect-resource-namespace=kube-system
--kube-qps=50 --kube-burst=100 --kube-timeout=30 --node-lock-timeout=5m
--node-lock-retry-timeout=28s --legacy-metrics=false --profiling=false --debug -v=4 -v 4
--enable-ascend=true --enable-iluvatar=false --logtostderr=true --stderrthreshold=2 --default-mem=0
--cambricon-mlu-name=cambricon.com/mlu --enflame-gcu-resource-name=enflame.com/gcu
"""


def test_every_flag_that_hamis_chart_writes_is_taken():
    shown = printed(*CHART.split())
    assert (shown["kube-qps"], shown["kube-burst"], shown["kube-timeout"]) == (50.0, 100, "30s")
    assert shown["devices"] == {
        "cambricon": {"resourceCountName": "cambricon.com/mlu"},
        "enflame": {"resourceNameGCU": "enflame.com/gcu"},
    }


@pytest.mark.parametrize("flag", FOREIGN)
def test_no_flag_of_hami_is_unknown(flag):
    value = "true" if flag in SWITCHES else "1"
    assert hami("--print-config", f"--{flag}={value}").exit_code == 0


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (["--leader_elect=TRUE"], ["--leader-elect"]),
        (["--leader-elect=maybe"], ["--leader-elect=maybe"]),
        (["-v4"], ["--v=4"]),
        (["-v", "4"], ["--v", "4"]),
        (["--unknown_flag=x", "plain_text"], ["--unknown_flag=x", "plain_text"]),
        (["--scheduler-name", "a_b"], ["--scheduler-name", "a_b"]),
        (["--scheduler-name=a_b=c"], ["--scheduler-name=a_b=c"]),
    ],
)
def test_only_the_names_of_flags_are_rewritten(written, read):
    flags = [Flag(name="leader-elect", switch=True), Flag(name="scheduler-name")]
    assert list(rewritten(written, flags)) == read


# Messages.


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            ["--quota-admission=x"],
            "hami: error: --quota-admission 'x': write 'impossible', 'deny' or 'pending'\n",
        ),
        (
            ["--config=/nowhere.yaml"],
            "hami: error: /nowhere.yaml: No such file or directory; name a readable file\n",
        ),
    ],
)
def test_a_wrong_setting_is_one_line_and_2(arguments, text):
    result = hami(*arguments)
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", text)


def test_a_flag_that_nobody_knows_is_2():
    result = hami("--leader-elekt=true")
    assert result.exit_code == 2
    assert "--leader-elekt" in result.stderr


# What is served.


@pytest.fixture
def service(monkeypatch):
    """A service in the place of the real one, which notes what it is given and ends."""
    calls = []

    async def serve(config, ready, *, source):
        calls.append((config, source))
        ready({"extender": "http://127.0.0.1:1"})
        if isinstance(module.error, Exception):
            raise module.error

    module = types.SimpleNamespace(serve=serve, calls=calls, error=None)
    monkeypatch.setitem(sys.modules, "hami.scheduler.service", module)
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield module
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def lines(text: str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines()]


def test_the_service_gets_the_settings_and_says_where_it_listens(service, tmp_path):
    where = tmp_path / "addresses.json"
    result = hami(f"--address-file={where}", "--scheduler-name=mine", "--debug")
    assert (result.exit_code, result.stdout) == (0, "")
    ((config, source),) = service.calls
    assert config.scheduler_name == source.load().scheduler_name == "mine"
    assert json.loads(where.read_text()) == {"extender": "http://127.0.0.1:1"}
    events = lines(result.stderr)
    assert [e["level"] for e in events] == ["warning", "warning", "info"]
    assert events[0]["event"] == "--debug has no effect here; leave it out"
    assert events[1]["event"].startswith("the webhook is served without TLS")
    assert (events[2]["event"], events[2]["extender"]) == ("listening", "http://127.0.0.1:1")


def test_a_section_without_a_plugin_is_said_once(service, tmp_path):
    (tmp_path / "d.yaml").write_text("metax: {}\nnvidia: {}")
    result = hami(f"--device-config-file={tmp_path}/d.yaml")
    (said,) = [e["event"] for e in lines(result.stderr) if "section" in e["event"]]
    assert said == (
        "device configuration: no installed plugin reads the section 'metax'; install the "
        "vendor's plugin, or remove the section"
    )


MENDABLE = ConfigError("cannot listen on :1: Permission denied; choose another")


@pytest.mark.parametrize(
    "error", [MENDABLE, ExceptionGroup("tasks", [ExceptionGroup("parts", [MENDABLE])])]
)
def test_what_the_service_cannot_use_is_one_line_and_2(service, error):
    service.error = error
    result = hami()
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1] == f"hami: error: {MENDABLE}"


def test_a_bug_beside_it_is_not_hidden(service):
    service.error = ExceptionGroup("tasks", [MENDABLE, KeyError("bug")])
    result = hami()
    assert result.exit_code == 1
    assert result.exception is service.error


def test_an_address_file_that_cannot_be_written_is_2(service):
    result = hami("--address-file=/nowhere/a")
    assert result.exit_code == 2
    assert "address-file /nowhere/a: No such file or directory; name a file" in result.stderr


# Logs.


LOGGING = """
import logging, structlog, sys
from hami.logs import configure_logs, set_level
configure_logs("info", sys.argv[1])
log = structlog.get_logger("hami.x")
log.info("placed", pod="ml/p", token="abc", key_pem="xyz")
log.debug("unseen")
logging.getLogger("uvicorn.error").info("unseen")
logging.getLogger("uvicorn.error").warning("a caller sent %s", "nonsense")
try:
    1 / 0
except ZeroDivisionError:
    log.exception("failed")
set_level("error")
log.warning("unseen")
log.error("seen")
configure_logs("debug", sys.argv[1])
log.debug("once")
"""


def logged(form: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", LOGGING, form], capture_output=True, timeout=60, check=True
    )
    assert result.stdout == b""
    return result.stderr.decode()


def test_logs_are_json_lines_without_secrets():
    entries = lines(logged("json"))
    assert [(e["level"], e["event"]) for e in entries] == [
        ("info", "placed"),
        ("warning", "a caller sent nonsense"),
        ("error", "failed"),
        ("error", "seen"),
        ("debug", "once"),
    ]
    assert (entries[0]["pod"], entries[0]["token"], entries[0]["key_pem"]) == (
        "ml/p",
        "(not logged)",
        "(not logged)",
    )
    assert entries[1]["logger"] == "uvicorn.error"
    assert entries[2]["exception"].endswith("ZeroDivisionError: division by zero")


def test_logs_for_people_have_no_colours_in_a_file():
    text = logged("console")
    assert "placed" in text
    assert "\x1b" not in text
    assert "unseen" not in text


# Signals.


SERVING = """
import asyncio, sys
from hami.cli.foreground import run_until_signal
async def serving():
    print("up", flush=True)
    try:
        await asyncio.sleep(60)
    finally:
        print("closing", flush=True)
        await asyncio.sleep(float(sys.argv[1]))
        print("closed", flush=True)
run_until_signal(serving)
"""


def told(*signals: signal.Signals, slow: float = 0.0) -> tuple[int, str]:
    process = subprocess.Popen([sys.executable, "-c", SERVING, str(slow)], stdout=subprocess.PIPE)
    with process:
        assert process.stdout.readline() == b"up\n"
        process.send_signal(signals[0])
        assert process.stdout.readline() == b"closing\n"
        for other in signals[1:]:
            process.send_signal(other)
        rest = process.stdout.read().decode()
        return process.wait(60), rest


@pytest.mark.parametrize("which", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_service_in_order_and_with_0(which):
    assert told(which) == (0, "closed\n")


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_it_at_once(second):
    assert told(signal.SIGTERM, second, slow=60) == (130, "")


# Documentation.


DOCS = (ROOT / "docs" / "scheduler.md").read_text()


def test_every_setting_is_documented_as_it_is():
    rows = re.findall(r"^\| `([a-z-]+)` \| (.*?) \| (.*?) \| (yes|no) \|$", DOCS, re.MULTILINE)
    shown = printed()
    documented = {key: (default, text, live) for key, default, text, live in rows}
    expected = {}
    for name in SchedulerConfig.model_fields:
        value = shown[key_of(name)]
        empty = value in ("", None, {})
        default = "" if empty else f"`{json.dumps(value) if isinstance(value, bool) else value}`"
        text = SchedulerConfig.model_fields[name].description
        expected[key_of(name)] = (default, text, "yes" if SCHEDULER.setting_of(name).live else "no")
    assert documented == expected


def test_every_variable_of_others_is_documented():
    variables = {
        v for n in SchedulerConfig.model_fields for v in SCHEDULER.setting_of(n).environment
    }
    assert variables <= set(re.findall(r"`([A-Z_]+)`", DOCS))


def test_the_documented_configuration_file_is_one(tmp_path):
    text = re.search(r"<!-- config -->\n```yaml\n(.*?)```", DOCS, re.DOTALL).group(1)
    (tmp_path / "device-config.yaml").write_text("nvidia: {}")
    (tmp_path / "c.yaml").write_text(text.replace("/etc/hami", str(tmp_path)))
    shown = printed(f"--config={tmp_path}/c.yaml")
    assert (shown["leader-mode"], shown["devices"]) == ("colocated", {"nvidia": {}})


def test_the_documented_manifests_are_yaml():
    blocks = re.findall(r"```yaml\n(.*?)```", DOCS, re.DOTALL)
    kinds = [d.get("kind") for block in blocks for d in yaml.safe_load_all(block)]
    assert {"KubeSchedulerConfiguration", "MutatingWebhookConfiguration", "ClusterRole", "Role"} <= set(kinds)  # fmt: skip


def test_no_line_of_prose_is_wider_than_the_rest():
    prose = [line for line in DOCS.splitlines() if not line.startswith("|")]
    assert [line for line in prose if len(line) > 104] == []
