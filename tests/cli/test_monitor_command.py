"""``hami monitor``: its settings, its messages, and what docs/monitor.md says of them."""

from __future__ import annotations

import json
import re
import sys
import types
from pathlib import Path

import pytest
import structlog
import yaml
from typer.testing import CliRunner

from hami.cli import app as cli
from hami.domain.errors import ConfigError
from hami.domain.measurements import Measurement
from hami.domain.options import NodeOption
from hami.monitor import monitor
from hami.monitor.settings.config import MonitorConfig
from hami.monitor.settings.source import MONITOR
from hami.monitor.tick import pod_warnings
from hami.settings.model import key_of
from hami.vendors.registry import Vendors

from ..builders import a_plugin, answering

DOCS = (Path(__file__).parents[2] / "docs" / "monitor.md").read_text()
ACME = a_plugin(
    answering("hami_discover", []),
    answering("hami_measure", Measurement()),
    answering(
        "hami_node_options",
        [NodeOption(section="acme", key="root", help="Where.", variables=("ACME_ROOT",))],
    ),
)


@pytest.fixture(autouse=True)
def plugins(install, monkeypatch):
    install(acme=ACME, bolt=a_plugin(vendors=["BOLT"]))
    for name in ("NODE_NAME", "NodeName", "CONFIG_FILE", "HOOK_PATH"):
        monkeypatch.delenv(name, raising=False)


def hami(*arguments: str, **environment: str):
    return CliRunner().invoke(cli.app, ["monitor", *arguments], env={"COLUMNS": "80"} | environment)


def printed(*arguments: str, **environment: str) -> dict:
    result = hami("--print-config", *arguments, **environment)
    assert (result.exit_code, result.stderr) == (0, "")
    return yaml.safe_load(result.stdout)


@pytest.mark.parametrize(
    ("arguments", "environment", "key", "value"),
    [
        ((), {}, "tick", "500ms"),
        (("--tick", "1s"), {"HAMI_MONITOR_TICK": "2s"}, "tick", "1s"),
        ((), {"HAMI_MONITOR_TICK": "100ms"}, "tick", "100ms"),
        ((), {"NODE_NAME": "n1"}, "node-name", "n1"),
        ((), {"HOOK_PATH": "/usr/local/vgpu2"}, "hook-path", "/usr/local/vgpu2"),
        (("--vendors", "nvidia,dcu"), {}, "vendors", ["nvidia", "dcu"]),
        (("--metrics-bind-address", "off"), {}, "metrics-bind-address", "off"),
        (("--legacy-metrics",), {}, "legacy-metrics", True),
        ((), {"ACME_ROOT": "/x"}, "devices", {"acme": {"root": "/x"}}),
    ],
)
def test_a_setting_is_found(arguments, environment, key, value):
    assert printed(*arguments, **environment)[key] == value


def test_the_help_names_no_default_where_there_is_none():
    text = " ".join(hami("--help").stdout.split())
    assert "by default all plugins'. " in text
    assert "Default: ." not in text


def test_off_may_be_yamls(tmp_path):
    (tmp_path / "c.yaml").write_text("metrics-bind-address: off\n")
    assert printed("--config", str(tmp_path / "c.yaml"))["metrics-bind-address"] == "off"
    assert MonitorConfig(metrics_bind_address="off").http_bind is None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--tick", "50ms"), "--tick '50ms': write 100ms or more"),
        (("--tick", "3s"), "--tick '3s': write 2s or less"),
        (("--priority-floor", "51"), "--priority-floor '51': write 50 or less"),
        (("--slices", "here"), "--slices 'here': "),
        (("--metrics-bind-address", "9394"), "write HOST:PORT"),
    ],
)
def test_what_cannot_be_is_one_line_and_2(arguments, said):
    result = hami(*arguments)
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.fixture
def serving(monkeypatch):
    module = types.SimpleNamespace(calls=[], error=None)

    async def serve(config, *, source, ready):
        module.calls.append((config, source))
        if module.error:
            raise module.error
        ready()

    module.serve = serve
    monkeypatch.setitem(sys.modules, "hami.monitor.monitor", module)
    yield module
    structlog.reset_defaults()


def test_the_monitor_gets_the_settings_and_says_when_it_is_ready(serving):
    result = hami("--tick=200ms", "-v=4")
    assert (result.exit_code, result.stdout) == (0, "")
    ((config, source),) = serving.calls
    assert config.tick == source.load().tick == 0.2
    events = [json.loads(line)["event"] for line in result.stderr.splitlines()]
    assert events == ["--v has no effect here; leave it out", "ready"]


def test_what_the_monitor_cannot_use_is_one_line_and_2(serving):
    serving.error = ConfigError("another monitor runs on this node")
    result = hami()
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1] == f"hami: error: {serving.error}"


def test_those_that_measure_are_measured():
    vendors = Vendors.of({"acme": ACME, "bolt": a_plugin(vendors=["BOLT"])})
    assert [v.profile.key for v in monitor.chosen(vendors, ())] == ["ACME"]
    assert [v.profile.key for v in monitor.chosen(vendors, ("Acme", "acme"))] == ["ACME"]
    with pytest.raises(ConfigError, match=r"'bolt' measures; name some of acme"):
        monitor.chosen(vendors, ("bolt",))


# Documentation.


def test_every_setting_is_documented_as_it_is():
    rows = re.findall(r"^\| `([a-z-]+)` \| (.*?) \| (.*?) \| (yes|no) \|$", DOCS, re.MULTILINE)
    documented = {key: (default, text, live) for key, default, text, live in rows}
    expected = {}
    for name in MONITOR.fields:
        info = MonitorConfig.model_fields[name]
        value = info.default_factory() if info.default_factory else info.default
        shown = MonitorConfig.model_construct(**{name: value}).model_dump(mode="json")[name]
        if isinstance(shown, list):
            shown = ",".join(shown)
        empty = shown in ("", None, {})
        default = "" if empty else f"`{json.dumps(shown) if isinstance(shown, bool) else shown}`"
        live = "yes" if MONITOR.setting_of(name).live else "no"
        expected[key_of(name)] = (default, info.description, live)
    assert documented == expected


def test_every_other_name_of_a_setting_is_documented():
    settings = [MONITOR.setting_of(name) for name in MONITOR.fields]
    variables = {variable for setting in settings for variable in setting.environment}
    flags = {f"--{flag}" for setting in settings for flag in setting.flags}
    assert variables <= set(re.findall(r"`([A-Za-z_]+)`", DOCS))
    assert flags <= set(re.findall(r"`(--[a-z-]+)", DOCS))


def test_every_reason_of_an_event_is_documented():
    reasons = {pod_warnings.BYPASS, pod_warnings.COVERED, pod_warnings.STRANGER}
    assert reasons == set(re.findall(r"^\| `([A-Z]\w+)` \| [a-z]", DOCS, re.MULTILINE))
