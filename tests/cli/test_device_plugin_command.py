"""``hami device-plugin``: its flags and a vendor's, its messages, and what docs/node-agent.md says."""

from __future__ import annotations

import json
import logging
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
from hami.domain.options import NodeOption, OptionKind
from hami.node.settings.config import AgentConfig
from hami.node.settings.source import DEVICE_PLUGIN
from hami.settings.model import key_of

from ..builders import a_plugin, answering
from ..installed import Distribution, Point

ROOT = Path(__file__).parents[2]
DOCS = (ROOT / "docs" / "node-agent.md").read_text()


def option(flags: str, kind: OptionKind = OptionKind.TEXT, key: str = "", **fields) -> NodeOption:
    names = tuple(flags.split())
    return NodeOption(
        section="acme", key=key or names[0].removeprefix("--"), flags=names, kind=kind,
        help=fields.pop("help", "What it is."), **fields,
    )  # fmt: skip


ACME = a_plugin(
    answering("hami_discover", []),
    answering(
        "hami_node_options",
        [
            option("--mode --acme-mode", choices=("none", "single"), variables=("ACME_MODE",), default="none"),
            option("--fast", OptionKind.SWITCH),
            option("--count", OptionKind.INTEGER),
            option("--ways", OptionKind.LIST),
            NodeOption(section="acme", key="quiet", help="Silence.", variables=("ACME_QUIET",), kind=OptionKind.SWITCH),
        ],
    ),
)  # fmt: skip
BOLT = a_plugin(
    answering("hami_discover", []),
    answering("hami_node_options", [option("--mode"), option("--volts", OptionKind.INTEGER)]),
    vendors=["BOLT"],
)
PAPER = a_plugin(vendors=["PAPER"])


@pytest.fixture(autouse=True)
def plugins(install, monkeypatch):
    install(acme=ACME, bolt=BOLT, paper=PAPER)
    for name in ("NODE_NAME", "NodeName", "CONFIG_FILE", "KUBELET_SOCKET"):
        monkeypatch.delenv(name, raising=False)


def hami(*arguments: str, vendor: str = "acme", **environment: str):
    named = [f"--vendor={vendor}"] if vendor else []
    return CliRunner().invoke(
        cli.app,
        ["device-plugin", *named, *arguments],
        env={"COLUMNS": "80", "NODE_NAME": "n1"} | environment,
    )


def printed(*arguments: str, **environment: str) -> dict:
    result = hami("--print-config", *arguments, **environment)
    assert (result.exit_code, result.stderr) == (0, "")
    return yaml.safe_load(result.stdout)


# Settings.


def test_every_setting_is_a_flag_and_a_variable():
    assert set(printed()) == {key_of(name) for name in DEVICE_PLUGIN.fields}
    assert printed(HAMI_DEVICE_PLUGIN_STOP_UNMOUNTED="true")["stop-unmounted"] is True
    text = hami("--help").stdout
    assert set(re.findall(r"^ +(--[a-z-]+)", text, re.MULTILINE)) >= {
        f"--{key_of(name)}" for name in DEVICE_PLUGIN.flag_fields
    }


@pytest.mark.parametrize(
    ("arguments", "changed"),
    [
        (["--kubelet_dir=/k"], {"kubelet-dir": "/k"}),
        (["-kubelet-dir", "/k"], {"kubelet-dir": "/k"}),
        (["--stop-unmounted=true"], {"stop-unmounted": True}),
        (["--stop-unmounted=false"], {"stop-unmounted": False}),
        (["--stop-unmounted=on"], {"stop-unmounted": True}),
        (["--no-stop-unmounted"], {"stop-unmounted": False}),
        (["--identity", "lock"], {"identity": "lock"}),
        (["--node-name=n2"], {"node-name": "n2"}),
        (["--config-file=/dev/null"], {"device-config": "/dev/null"}),
        (["-v=4", "--logtostderr", "--stderrthreshold=2"], {}),
        (["--mode=single"], {"devices": {"acme": {"mode": "single"}}}),
        (["--acme-mode", "single"], {"devices": {"acme": {"mode": "single"}}}),
        (["-acme_mode=single"], {"devices": {"acme": {"mode": "single"}}}),
        (["--mode=single", "--mode", "none"], {"devices": {"acme": {"mode": "none"}}}),
        (["--fast"], {"devices": {"acme": {"fast": True}}}),
        (["--fast=true"], {"devices": {"acme": {"fast": True}}}),
        (["--fast=0"], {"devices": {"acme": {"fast": False}}}),
        (["--no-fast"], {"devices": {"acme": {"fast": False}}}),
        (["--fast", "--identity=lock"], {"devices": {"acme": {"fast": True}}, "identity": "lock"}),
        (["--count", "3"], {"devices": {"acme": {"count": 3}}}),
        (["--ways=a,b", "--ways", "c"], {"devices": {"acme": {"ways": ["a", "b", "c"]}}}),
        (["--kube-context", "--fast"], {"kube-context": "--fast"}),
    ],
)
def test_flags_are_written_as_hamis_manifests_write_them(arguments, changed):
    assert printed(*arguments) == printed() | changed


def test_the_vendor_may_be_named_by_a_variable_or_by_the_file(tmp_path):
    text = a_file(tmp_path / "c.yaml", "vendor: ACME")
    wanted = {"devices": {"acme": {"count": 3}}}
    for named in ({"HAMI_DEVICE_PLUGIN_VENDOR": "Acme"}, {"HAMI_DEVICE_PLUGIN_CONFIG": text}):
        result = hami("--print-config", "--count=3", vendor="", **named)
        assert yaml.safe_load(result.stdout).items() >= wanted.items()
    result = hami("--print-config", "--count=3", f"--config={text}", vendor="")
    assert yaml.safe_load(result.stdout).items() >= wanted.items()


def a_file(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def test_a_vendors_variables_are_read():
    shown = printed(ACME_MODE="single", ACME_QUIET="true")
    assert shown["devices"] == {"acme": {"mode": "single", "quiet": True}}


# Help.


def test_the_help_shows_the_options_of_the_vendor():
    text = " ".join(hami("--help").stdout.split())
    assert "Options of vendor ACME:" in text
    assert "--mode, --acme-mode none|single What it is. Variable: ACME_MODE. Default: none." in text
    assert "--fast What it is." in text
    assert "ACME_QUIET Silence." in text
    assert "--volts" not in text


def test_the_help_without_a_vendor_says_where_its_options_are():
    result = hami("--help", vendor="")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "They are shown with --vendor" in result.stdout


# Messages.


@pytest.mark.parametrize(
    ("vendor", "arguments", "text"),
    [
        ("", [], "vendor is not given; name one with --vendor (hami plugins lists them)"),
        ("zinc", [], "no installed plugin has the vendor 'zinc' (installed: ACME (hami-acme), BOLT (hami-bolt)); install that vendor's own plugin"),
        ("hygon", [], "no installed plugin has the vendor 'hygon' (installed: ACME (hami-acme), BOLT (hami-bolt)); install hami-hygon"),
        ("a b", [], "'a b' is no vendor; name one of ACME (hami-acme), BOLT (hami-bolt)"),
        ("paper", [], "vendor PAPER of hami-paper finds no devices on nodes (it has no hook hami_discover); install a version that does. With such a hook: ACME (hami-acme), BOLT (hami-bolt)"),
        ("acme", ["--volts=3"], "--volts is an option of vendor BOLT (hami-bolt); leave it out, or serve that vendor with --vendor bolt"),
        ("", ["--fast"], "--fast is an option of vendor ACME (hami-acme); leave it out, or serve that vendor with --vendor acme"),
        ("acme", ["--count"], "--count has no value; write --count=VALUE"),
        ("acme", ["--count=few"], "--count 'few': write a whole number"),
        ("acme", ["--fast=maybe"], "--fast 'maybe': write true or false"),
        ("acme", ["--stop-unmounted=maybe"], "--stop-unmounted 'maybe': write true or false"),
        ("acme", ["--acme-mode=mixed"], "--mode 'mixed': write one of none, single"),
        ("acme", ["--identity=x"], "--identity 'x': write 'auto', 'kubelet' or 'lock'"),
        ("acme", ["--config=/nowhere.yaml"], "/nowhere.yaml: No such file or directory; name a readable file"),
    ],
)  # fmt: skip
def test_what_must_be_changed_is_one_line_and_2(vendor, arguments, text):
    result = hami(*arguments, vendor=vendor)
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", f"hami: error: {text}\n")


def test_a_flag_that_nobody_knows_is_2():
    result = hami("--vollts=3")
    assert result.exit_code == 2
    assert "--vollts" in result.stderr


def test_a_vendor_must_not_take_the_agents_own_flags(install):
    greedy = a_plugin(
        answering("hami_discover", []), answering("hami_node_options", [option("--identity")])
    )
    install(Point("acme", greedy, Distribution("hami-acme")))
    result = hami()
    assert result.exit_code == 2
    assert result.stderr == (
        "hami: error: vendor ACME of hami-acme declares the option --identity, which is the "
        "agent's own; repair or uninstall hami-acme\n"
    )


# What is served.


@pytest.fixture
def agent(monkeypatch):
    """An agent in the place of the real one, which notes what it is given and ends."""
    calls = []

    async def serve(config, *, source, ready):
        calls.append((config, source))
        ready()
        if isinstance(module.error, Exception):
            raise module.error

    module = types.SimpleNamespace(serve=serve, calls=calls, error=None)
    monkeypatch.setitem(sys.modules, "hami.node.agent", module)
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield module
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def test_the_agent_gets_the_settings_and_says_when_it_serves(agent):
    result = hami("--count=3", "-v=4")
    assert (result.exit_code, result.stdout) == (0, "")
    ((config, source),) = agent.calls
    assert config.devices == source.load().devices == {"acme": {"count": 3}}
    events = [json.loads(line) for line in result.stderr.splitlines()]
    assert [(e["level"], e["event"]) for e in events] == [
        ("warning", "--v has no effect here; leave it out"),
        ("info", "ready"),
    ]


def test_what_the_agent_cannot_use_is_one_line_and_2(agent):
    agent.error = ConfigError("no way to the Kubernetes API; name a kubeconfig")
    result = hami()
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1] == f"hami: error: {agent.error}"


# Documentation.


def test_every_setting_is_documented_as_it_is():
    rows = re.findall(r"^\| `([a-z-]+)` \| (.*?) \| (.*?) \| (yes|no) \|$", DOCS, re.MULTILINE)
    documented = {key: (default, text, live) for key, default, text, live in rows}
    expected = {}
    for name in DEVICE_PLUGIN.fields:
        info = AgentConfig.model_fields[name]
        value = info.default_factory() if info.default_factory else info.default
        shown = AgentConfig.model_construct(**{name: value}).model_dump(mode="json")[name]
        if isinstance(shown, list):
            shown = ",".join(shown)
        empty = shown in ("", None, {})
        default = "" if empty else f"`{json.dumps(shown) if isinstance(shown, bool) else shown}`"
        live = "yes" if DEVICE_PLUGIN.setting_of(name).live else "no"
        expected[key_of(name)] = (default, info.description, live)
    assert documented == expected


def test_every_other_name_of_a_setting_is_documented():
    settings = [DEVICE_PLUGIN.setting_of(name) for name in DEVICE_PLUGIN.fields]
    variables = {variable for setting in settings for variable in setting.environment}
    flags = {f"--{flag}" for setting in settings for flag in setting.flags}
    assert variables <= set(re.findall(r"`([A-Za-z_]+)`", DOCS))
    assert flags <= set(re.findall(r"`(--[a-z-]+)", DOCS))


def test_the_documented_files_are_ones(tmp_path):
    def block(name: str) -> str:
        return re.search(rf"<!-- {name} -->\n```\w+\n(.*?)```", DOCS, re.DOTALL).group(1)

    (tmp_path / "device-config.yaml").write_text("nvidia: {}")
    (tmp_path / "config.json").write_text(block("nodeconfig"))
    (tmp_path / "c.yaml").write_text(block("config").replace("/etc/hami", str(tmp_path)))
    result = hami(
        "--print-config", f"--config={tmp_path}/c.yaml", f"--node-config={tmp_path}/config.json"
    )
    shown = yaml.safe_load(result.stdout)
    assert (shown["devices"], len(shown["nodeconfig"])) == ({"nvidia": {}}, 2)


def test_no_line_of_prose_is_wider_than_the_rest():
    prose = [line for line in DOCS.splitlines() if not line.startswith("|")]
    assert [line for line in prose if len(line) > 104] == []
