"""The agent's settings: flags, environment, files, a vendor's options, and entries for nodes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from hami.domain.errors import ConfigError
from hami.domain.options import NodeOption, OptionKind
from hami.node.settings.config import AgentConfig
from hami.node.settings.source import DEVICE_PLUGIN, AgentSource, plugin_config
from hami.settings.node_config import checked_entries, matching
from hami.settings.source import as_yaml
from hami.settings.vendor_options import with_options
from hami.settings.watch import ConfigWatcher

NEEDED = {"vendor": "acme", "node_name": "n1"}


def a_file(path: Path, content: str) -> Path:
    path.write_text(content)
    return path


def loaded(
    tmp_path: Path, text: str = "", environment=None, options=(), given=None, **flags
) -> AgentConfig:
    return AgentSource(
        file=a_file(tmp_path / "c.yaml", text),
        flags=NEEDED | flags,
        environment=environment or {},
        options=options,
        option_flags=given or {},
        default_node_config=tmp_path / "config.json",
    ).load()


# Settings.


@pytest.mark.parametrize(
    ("environment", "field", "expected"),
    [
        ({"HAMI_DEVICE_PLUGIN_NODE_NAME": "a", "NODE_NAME": "b"}, "node_name", "a"),
        ({"NODE_NAME": "b", "NodeName": "c"}, "node_name", "b"),
        ({"NodeName": "c"}, "node_name", "c"),
        ({"KUBELET_SOCKET": "/s"}, "socket", Path("/s")),
        ({}, "socket", Path("/var/lib/kubelet/device-plugins/kubelet.sock")),
        ({"HAMI_DEVICE_PLUGIN_KUBELET_DIR": "/k"}, "socket", Path("/k/kubelet.sock")),
        ({"HAMI_DEVICE_PLUGIN_CDI_READ_DIRS": "/a,/b"}, "cdi_read_dirs", (Path("/a"), Path("/b"))),
        ({"HAMI_DEVICE_PLUGIN_USAGE_TMPFS": "off"}, "usage_tmpfs", "off"),
        ({}, "takes_unsigned", True),
        ({"HAMI_DEVICE_PLUGIN_VERIFICATION_KEYS": "/k"}, "takes_unsigned", False),
        (
            {"HAMI_DEVICE_PLUGIN_VERIFICATION_KEYS": "/k", "HAMI_DEVICE_PLUGIN_ACCEPT_UNSIGNED": "yes"},
            "takes_unsigned",
            True,
        ),
    ],
)  # fmt: skip
def test_variables_of_ours_precede_those_of_hami(environment, field, expected):
    named = {} if field == "node_name" else {"node_name": "n"}
    source = AgentSource(flags={"vendor": "acme"} | named, environment=environment)
    assert getattr(source.load(), field) == expected


@pytest.mark.parametrize(
    ("text", "field", "expected"),
    [
        ("usage-tmpfs: on", "usage_tmpfs", "on"),
        ("usage-tmpfs: no", "usage_tmpfs", "off"),
        ("accept-unsigned: yes", "accept_unsigned", "yes"),
        ("cdi-read-dirs: [/a, /b]", "cdi_read_dirs", (Path("/a"), Path("/b"))),
        ("stop_unmounted: true", "stop_unmounted", True),
        ("advertise-interval: 1m", "advertise_interval", 60.0),
    ],
)
def test_a_file_may_write_them_as_yaml_reads_them(tmp_path, text, field, expected):
    assert getattr(loaded(tmp_path, text), field) == expected


def bad(problem: str, text: str = "", id: str = "", **flags):
    return pytest.param(text, flags, problem, id=id or problem[:50])


@pytest.mark.parametrize(
    ("text", "flags", "problem"),
    [
        bad("vendor is not given; name one with --vendor", vendor=""),
        bad("node-name is not given; set NODE_NAME from the pod's spec.nodeName", node_name=""),
        bad("--identity 'pods': write 'auto', 'kubelet' or 'lock'", identity="pods"),
        bad("--slices 'here': is no absolute path; begin it with /", slices="here"),
        bad("--cdi-read-dirs '/a,b': is no absolute path; begin it with /", cdi_read_dirs="/a,b"),
        bad("--advertise-interval '0s': write more than 0", advertise_interval="0s"),
        bad("accept-unsigned no needs keys to verify signatures with", accept_unsigned="no"),
        bad("c.yaml: 'kubelet-dirs' is no setting; did you mean kubelet-dir?", "kubelet-dirs: /k"),
        bad("c.yaml: 'x' is no setting; hami device-plugin --help lists them", "x: 1"),
        bad("c.yaml: nodeconfig [{}]: nodeconfig: entry 1 of nodeconfig is about no node", "nodeconfig: [{}]"),
    ],
)  # fmt: skip
def test_a_wrong_setting_is_one_sentence(tmp_path, monkeypatch, text, flags, problem):
    monkeypatch.chdir(tmp_path)
    source = AgentSource(file=a_file(Path("c.yaml"), text), flags=NEEDED | flags)
    with pytest.raises(ConfigError) as refused:
        source.load()
    assert str(refused.value).startswith(problem)
    assert "\n" not in str(refused.value)


def test_printed_settings_are_read_back_alike(tmp_path):
    text = "devices: {acme: {x: 1}}\nnodeconfig: [{name: n1, x: 2}]\ncdi-read-dirs: /a"
    config = loaded(tmp_path, text, kubelet_socket="/s", discover_interval="1m30s")
    assert loaded(tmp_path, as_yaml(config)) == config


def test_no_variable_is_one_that_kubernetes_makes_for_a_service():
    """A Service named hami-device-plugin would put these into every pod."""
    made = ("HAMI_DEVICE_PLUGIN_SERVICE_", "HAMI_DEVICE_PLUGIN_PORT")
    variables = [DEVICE_PLUGIN.variable_of(name) for name in DEVICE_PLUGIN.flag_fields]
    assert not [name for name in variables if name.startswith(made)]


# A vendor's options.


def an_option(key: str, kind: OptionKind = OptionKind.TEXT, choices=()) -> NodeOption:
    return NodeOption(
        section="acme", key=key, help="", kind=kind, choices=choices,
        flags=(f"--{key}", f"--also-{key}"), variables=(key.upper(), f"OLD_{key.upper()}"),
    )  # fmt: skip


OPTIONS = [
    an_option("mode", choices=("a", "b")),
    an_option("fast", OptionKind.SWITCH),
    an_option("count", OptionKind.INTEGER),
    an_option("scale", OptionKind.NUMBER),
    an_option("ways", OptionKind.LIST, choices=("x", "y")),
]


@pytest.mark.parametrize(
    ("given", "environment", "section"),
    [
        ({}, {}, {"mode": "z"}),
        ({"--mode": "a"}, {"MODE": "b"}, {"mode": "a"}),
        ({}, {"MODE": "b"}, {"mode": "b"}),
        ({}, {"OLD_MODE": "b"}, {"mode": "b"}),
        ({}, {"MODE": "a", "OLD_MODE": "b"}, {"mode": "a"}),
        ({}, {"MODE": ""}, {"mode": "z"}),
        ({"--fast": "true"}, {}, {"mode": "z", "fast": True}),
        ({}, {"FAST": "False"}, {"mode": "z", "fast": False}),
        ({"--count": " 7 "}, {}, {"mode": "z", "count": 7}),
        ({}, {"SCALE": "1.5"}, {"mode": "z", "scale": 1.5}),
        ({"--ways": "x, y,"}, {}, {"mode": "z", "ways": ["x", "y"]}),
        ({"--ways": ""}, {"WAYS": "x"}, {"mode": "z", "ways": []}),
    ],
)
def test_a_flag_precedes_a_variable_which_precedes_the_section(given, environment, section):
    devices = {"acme": {"mode": "z"}, "other": {"mode": "z"}}
    expected = {"acme": section, "other": {"mode": "z"}}
    assert with_options(devices, OPTIONS, given, environment) == expected


@pytest.mark.parametrize("devices", [{}, {"acme": None}, {"acme": {}}])
def test_a_section_is_made_for_an_option(devices):
    assert with_options(devices, OPTIONS, {"--mode": "a"}, {}) == {"acme": {"mode": "a"}}


@pytest.mark.parametrize(
    ("devices", "given", "environment", "problem"),
    [
        ({}, {"--mode": "c"}, {}, "--mode 'c': write one of a, b"),
        ({}, {"--ways": "x,z"}, {}, "--ways 'z': write one of x, y"),
        ({}, {}, {"FAST": "maybe"}, "FAST 'maybe': write true or false"),
        ({}, {}, {"OLD_COUNT": "1.5"}, "OLD_COUNT '1.5': write a whole number"),
        ({}, {"--scale": "inf"}, {}, "--scale 'inf': write a number"),
        ({"acme": [1]}, {"--mode": "a"}, {}, "device configuration: acme is [1], so that --mode has no place"),
    ],
)  # fmt: skip
def test_a_wrong_option_names_its_flag_or_variable(devices, given, environment, problem):
    with pytest.raises(ConfigError) as refused:
        with_options(devices, OPTIONS, given, environment)
    assert str(refused.value).startswith(problem)


def test_options_stand_above_the_device_configuration(tmp_path):
    path = a_file(tmp_path / "d.yaml", "acme: {mode: z, other: 1}")
    config = loaded(
        tmp_path, "devices: {acme: {gone: 1}, more: {}}", {"COUNT": "3"}, OPTIONS, {"--mode": "a"},
        device_config=str(path),
    )  # fmt: skip
    assert config.devices == {"acme": {"mode": "a", "other": 1, "count": 3}, "more": {}}


# Entries for nodes.


@pytest.mark.parametrize(
    ("entry", "matches"),
    [
        ({"name": "n1"}, True),
        ({"NAME": "n1"}, True),
        ({"name": "n2"}, False),
        ({"name": "N1"}, False),
        ({"selector": {"pool": "a"}}, True),
        ({"selector": {"pool": "b"}}, False),
        ({"selector": {"pool": "a", "zone": "z"}}, False),
        ({"selector": {"absent": ""}}, False),
        ({"name": "n1", "selector": {"pool": "a"}}, True),
        ({"name": "n1", "selector": {"pool": "b"}}, False),
        ({"name": "", "selector": {"pool": "a"}}, True),
    ],
)
def test_an_entry_is_about_a_node_by_name_or_labels(entry, matches):
    entries = checked_entries([entry | {"devicesplitcount": 2}], "f")
    assert bool(matching(entries, "n1", {"pool": "a"})) == matches


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("[1]", "f.json: [1] is no mapping"),
        ('{"nodeconfigs": []}', "f.json: 'nodeconfigs' is not known; write a list named nodeconfig"),
        ("nodeconfig: []\nNodeConfig: []", "f.json: nodeconfig is there in two spellings; keep one"),
        ("nodeconfig: {name: n1}", "f.json: nodeconfig is {'name': 'n1'}; write a list of entries"),
        ("nodeconfig: [n1]", "f.json: entry 1 of nodeconfig is 'n1'; write keys and values"),
        ("nodeconfig: [{name: n1}, {x: 1}]", "f.json: entry 2 of nodeconfig is about no node; give it a name, or a selector"),
        ("nodeconfig: [{name: 1}]", "f.json: entry 1 of nodeconfig has the name 1; write a node's name, in quotes"),
        ("nodeconfig: [{selector: a=b}]", "f.json: entry 1 of nodeconfig has the selector 'a=b'; write labels"),
        ("nodeconfig: [{selector: {a: true}}]", "f.json: entry 1 of nodeconfig has the selector {'a': True}; write labels"),
        ("nodeconfig: [{name: a, x: 1, X: 2}]", "f.json: entry 1 of nodeconfig has the key 'X' twice"),
        ('{"nodeconfig": [', "f.json:1: this is not valid YAML"),
    ],
)  # fmt: skip
def test_a_file_of_entries_that_cannot_be_meant_is_refused(tmp_path, monkeypatch, content, problem):
    monkeypatch.chdir(tmp_path)
    a_file(Path("f.json"), content)
    with pytest.raises(ConfigError) as refused:
        loaded(tmp_path, node_config="f.json")
    assert str(refused.value).startswith(problem)


def test_hamis_file_is_read_where_its_chart_mounts_it(tmp_path):
    entry = {"name": "n1", "devicesplitcount": 4, "filterdevices": {"uuid": [], "index": []}}
    a_file(tmp_path / "config.json", json.dumps({"nodeconfig": [entry]}))
    assert loaded(tmp_path).nodeconfig == [entry]
    named = a_file(tmp_path / "other.yaml", "nodeconfig: []")
    assert loaded(tmp_path, node_config=str(named)).nodeconfig == []


def test_without_a_file_of_entries_there_are_none(tmp_path):
    assert loaded(tmp_path).nodeconfig == []
    with pytest.raises(ConfigError, match=r"f.json: No such file or directory"):
        loaded(tmp_path, node_config=str(tmp_path / "f.json"))


def test_hooks_are_given_the_sections_and_what_is_about_this_node(tmp_path):
    a_file(tmp_path / "config.json", '{"nodeconfig": [{"name": "n1", "x": 2}, {"name": "n2"}]}')
    text = "devices: {acme: {y: 1}}\nnodeconfig: [{selector: {pool: a}, x: 1}]"
    config = loaded(tmp_path, text)
    assert dict(plugin_config(config, labels={"pool": "a"}, identity="lock")) == {
        "acme": {"y": 1},
        "node": {
            "name": "n1",
            "labels": {"pool": "a"},
            "identity": "lock",
            "cdi_dir": "/var/run/cdi",
            "cdi_read_dirs": ["/etc/cdi", "/var/run/cdi"],
        },
        "nodeconfig": [{"selector": {"pool": "a"}, "x": 1}, {"name": "n1", "x": 2}],
    }


# Changed files.


class Watched:
    def __init__(self, tmp_path: Path) -> None:
        self.entries = tmp_path / "config.json"
        self.devices = a_file(tmp_path / "d.yaml", "acme: {x: 1}")
        self.source = AgentSource(
            flags=NEEDED | {"device_config": str(self.devices)},
            default_node_config=self.entries,
        )
        self.taken: asyncio.Queue[AgentConfig] = asyncio.Queue()
        self.watcher = ConfigWatcher(
            self.source, self.source.load(), self.taken.put_nowait, interval=0.01
        )


async def test_a_changed_file_reaches_the_running_agent(tmp_path):
    watched = Watched(tmp_path)
    running = asyncio.create_task(watched.watcher.run())
    try:
        async with asyncio.timeout(60):
            a_file(watched.devices, "acme: {x: 2}")
            assert (await watched.taken.get()).devices == {"acme": {"x": 2}}
            # A file that was not there at the start is noticed too.
            a_file(watched.entries, "nodeconfig: [{name: n1}]")
            assert (await watched.taken.get()).nodeconfig == [{"name": "n1"}]
    finally:
        running.cancel()


async def test_a_broken_file_leaves_what_was_there(tmp_path, capsys):
    watched = Watched(tmp_path)
    a_file(watched.entries, '{"nodeconfig": [')
    await watched.watcher.reload()
    assert watched.taken.empty()
    assert "config.json:1: this is not valid YAML" in capsys.readouterr().out
    assert watched.watcher.running.devices == {"acme": {"x": 1}}
