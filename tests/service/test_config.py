"""Settings from flags, environment and file: who wins, what is refused, what is read again."""

from __future__ import annotations

import asyncio

import pytest
import yaml

from hami.domain.errors import ConfigError
from hami.domain.scheduling import NodePolicy
from hami.durations import go_duration, seconds_of
from hami.kube.leases import own_lease
from hami.scheduler.settings.config import RETRY_JITTER, SchedulerConfig
from hami.scheduler.settings.config_source import FLAG_FIELDS, SCHEDULER, ConfigSource
from hami.scheduler.settings.hami_flags import RESOURCE_NAMES, WITHOUT_EFFECT, unread_sections
from hami.settings.model import key_of
from hami.settings.source import as_yaml
from hami.settings.watch import ConfigWatcher
from hami.vendors.registry import installed_plugins, load_vendors


def a_file(path, text: str):
    path.write_text(text)
    return path


def loaded(tmp_path, text: str = "", environment=None, foreign=None, **flags) -> SchedulerConfig:
    return ConfigSource(
        file=a_file(tmp_path / "c.yaml", text),
        flags=flags,
        foreign=foreign or {},
        environment=environment or {},
    ).load()


# Precedence.


@pytest.mark.parametrize(
    ("flag", "variable", "other", "text", "expected"),
    [
        ("1s", "2s", "3s", "node-lock-timeout: 4s", 1.0),
        (None, "2s", "3s", "node-lock-timeout: 4s", 2.0),
        (None, None, "3s", "node-lock-timeout: 4s", 3.0),
        (None, None, None, "node-lock-timeout: 4s", 4.0),
        (None, None, None, "node_lock_timeout: 4s", 4.0),
        (None, "", "", "node-lock-timeout: 4s", 4.0),
        (None, None, None, "node-lock-timeout:", 300.0),
        (None, None, None, "", 300.0),
    ],
)
def test_a_flag_precedes_the_environment_which_precedes_the_file(
    tmp_path, flag, variable, other, text, expected
):
    variables = {
        "HAMI_SCHEDULER_NODE_LOCK_TIMEOUT": variable,
        "HAMI_NODELOCK_EXPIRE": other,
    }
    environment = {name: value for name, value in variables.items() if value is not None}
    flags = {"node_lock_timeout": flag} if flag else {}
    assert loaded(tmp_path, text, environment, **flags).node_lock_timeout == expected


def test_the_file_may_be_named_by_the_environment(tmp_path):
    path = a_file(tmp_path / "c.yaml", "scheduler-name: mine")
    source = ConfigSource(environment={"HAMI_SCHEDULER_CONFIG": str(path)})
    assert source.load().scheduler_name == "mine"


def test_what_kubernetes_puts_into_the_environment_of_our_service_is_no_setting(tmp_path):
    environment = {
        "HAMI_SCHEDULER_SERVICE_HOST": "10.0.0.1",
        "HAMI_SCHEDULER_SERVICE_PORT": "443",
        "HAMI_SCHEDULER_SERVICE_PORT_HTTPS": "443",
        "HAMI_SCHEDULER_PORT": "tcp://10.0.0.1:443",
        "HAMI_SCHEDULER_PORT_443_TCP_ADDR": "10.0.0.1",
    }
    assert loaded(tmp_path, "", environment).model_dump() == SchedulerConfig().model_dump()
    variables = {SCHEDULER.variable_of(name) for name in FLAG_FIELDS}
    assert not [v for v in variables if v.startswith(tuple(environment))]


def test_the_pods_own_variables_are_read(tmp_path):
    config = loaded(tmp_path, "", {"POD_NAME": "p", "POD_NAMESPACE": "ns"}, leader_mode="own")
    assert config.lease == ("ns", "hami-scheduler-extender")
    assert config.holder.startswith("p_")


def test_every_process_has_an_identity_of_its_own_unless_it_is_told_one(tmp_path):
    one, other = loaded(tmp_path, pod_name="p"), loaded(tmp_path, pod_name="p")
    assert one.holder != other.holder
    assert one.model_copy(update={"log_level": "debug"}).holder == one.holder
    assert loaded(tmp_path, identity="me", pod_name="p").holder == "me"


# Refusals.


def bad(problem: str, text: str = "", environment=None, id: str = "", **flags):
    return pytest.param(text, environment, flags, problem, id=id or problem[:40])


@pytest.mark.parametrize(
    ("text", "environment", "flags", "problem"),
    [
        bad("c.yaml: 'node-lock-timeouts' is no setting; did you mean node-lock-timeout?", "node-lock-timeouts: 5s"),
        bad("c.yaml: 'x' is no setting; hami scheduler --help lists them", "x: 5s"),
        bad("c.yaml: log-level is there in two spellings; keep one", "log-level: info\nlog_level: info"),
        bad("c.yaml:2: this is not valid YAML: the key 'log-level' is there twice; repair it", "log-level: info\nlog-level: info"),
        bad("c.yaml:1: this is not valid YAML: ", "a: [", id="broken YAML"),
        bad("c.yaml: ['a'] is no mapping; write keys and values, one a line", "- a"),
        bad("c.yaml: node-lock-timeout '5x': is no duration; write it as Go does, for example 5m, 28s or 300ms", "node-lock-timeout: 5x"),
        bad("HAMI_NODELOCK_EXPIRE 'soon': is no duration", "", {"HAMI_NODELOCK_EXPIRE": "soon"}),
        bad("HAMI_SCHEDULER_LEADER_ELECT 'maybe': write true or false", "", {"HAMI_SCHEDULER_LEADER_ELECT": "maybe"}),
        bad("--quota-admission 'sometimes': write 'impossible', 'deny' or 'pending'", quota_admission="sometimes"),
        bad("--gpu-scheduler-policy 'spread,fast': 'fast' is no policy; write one or several (with commas) of binpack, ", gpu_scheduler_policy="spread,fast"),
        bad("--node-scheduler-policy 'numa': write 'binpack' or 'spread'", node_scheduler_policy="numa"),
        bad("--kube-qps '-1': write 0 or more", kube_qps="-1"),
        bad("--kube-burst 'x': write a number", kube_burst="x"),
        bad("--bind-timeout '0s': write more than 0", bind_timeout="0s"),
        bad("c.yaml: scheduler-name 7: write a text, in quotes where YAML reads something else", "scheduler-name: 7"),
        bad("c.yaml: cert-file ['a']: write a path", "cert-file: [a]"),
        bad("--extender-bind '8080': is no address; write HOST:PORT, :PORT, [IPV6]:PORT or unix:/path", extender_bind="8080"),
        bad("--signing-key-secret 'a/b/c': is no object's name; write NAME or NAMESPACE/NAME", signing_key_secret="a/b/c"),
        bad("--public-keys '/a': is no object's name; write NAME or NAMESPACE/NAME", public_keys="/a"),
        bad("--log-level 'loud': write 'debug', 'info', 'warning' or 'error'; --log-format 'xml': write 'json' or 'console'", log_level="loud", log_format="xml"),
        bad("cert-file and key-file come together: key-file is missing; give both or none", cert_file="a"),
        bad("client-ca-file needs TLS: give cert-file and key-file too", client_ca_file="a"),
        bad("extender-tls needs a certificate: give cert-file and key-file too", extender_tls="true"),
        bad("client-ca-file needs TLS on the extender's listener: leave extender-tls out", extender_tls="false", client_ca_file="a", cert_file="b", key_file="c"),
        bad("extender-bind :8080 would let anyone who reaches the port call /filter and /bind; bind it to 127.0.0.1, ask callers for certificates with client-ca-file, or accept it with insecure-extender", extender_bind=":8080"),
        bad("http-bind 0.0.0.0:443 would let anyone who reaches the port call /filter and /bind; give extender-bind 127.0.0.1:8080 (kube-scheduler's urlPrefix) and public-bind 0.0.0.0:443 (the webhook's) instead, or accept it with insecure-extender", http_bind="0.0.0.0:443"),
        bad("http-bind is one listener instead of two, and public-bind is given as well; leave http-bind out", http_bind="127.0.0.1:1", public_bind=":2"),
        bad("http-bind serves the webhook too, and the API server shows no client certificate; give extender-bind and public-bind instead", http_bind="127.0.0.1:1", client_ca_file="a", cert_file="b", key_file="c"),
        bad("public-bind is empty; write HOST:PORT or leave it out", public_bind=""),
        bad("signing-key-file and signing-key-secret are both given; leave one out", signing_key_file="a", signing_key_secret="b"),
        bad("leader-elect contradicts leader-mode none; leave one out", leader_elect="true", leader_mode="none"),
        bad("leader-elect-retry-period, -renew-deadline and -lease-duration must rise, as in 2s, 10s, 15s", leader_elect_renew_deadline="15s"),
        bad("bind-timeout 15s leaves no time in a lease of 15s; shorten it or lengthen leader-elect-lease-duration", leader_mode="own", bind_timeout="15s"),
        bad("a renewed lease is led under for 4s (leader-elect-renew-deadline, or -lease-duration less bind-timeout), which two tries to renew it, 4.8s, do not fit into; shorten leader-elect-retry-period or bind-timeout, or lengthen the others", leader_mode="own", bind_timeout="11s", shutdown_grace="11s"),
        bad("a renewed lease is led under for 4.8s (", leader_mode="own", leader_elect_renew_deadline="4.8s"),
        bad("shutdown-grace 4.9s is shorter than bind-timeout 5s, so that a bind under way could outlive us; lengthen it or shorten bind-timeout", shutdown_grace="4.9s"),
    ],
)  # fmt: skip
def test_a_wrong_setting_is_one_sentence_with_its_place_and_remedy(
    tmp_path, monkeypatch, text, environment, flags, problem
):
    monkeypatch.chdir(tmp_path)
    source = ConfigSource(
        file=a_file(tmp_path / "c.yaml", text).relative_to(tmp_path),
        flags=flags,
        environment=environment or {},
    )
    with pytest.raises(ConfigError) as refused:
        source.load()
    assert str(refused.value).startswith(problem)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("content", "problem"),
    [(None, "No such file or directory; name a readable file"), (b"\xff", "byte 0 is not UTF-8")],
)
@pytest.mark.parametrize("which", ["config", "device-config"])
def test_a_file_that_cannot_be_read_is_named(tmp_path, content, problem, which):
    path = tmp_path / "f.yaml"
    if content is not None:
        path.write_bytes(content)
    if which == "config":
        source = ConfigSource(file=path)
    else:
        source = ConfigSource(flags={"device_config_file": str(path)})
    with pytest.raises(ConfigError, match=rf"f.yaml: {problem}"):
        source.load()


# Meaning.


@pytest.mark.parametrize(
    ("flags", "election", "lease"),
    [
        ({}, "none", ("kube-system", "kube-scheduler")),
        ({"leader_elect": "true"}, "colocated", ("kube-system", "kube-scheduler")),
        (
            {
                "leader_elect": "true",
                "leader_elect_resource_name": "hami-scheduler",
                "leader_elect_resource_namespace": "hami",
            },
            "colocated",
            ("hami", "hami-scheduler"),
        ),
        ({"leader_mode": "own"}, "own", ("kube-system", "hami-scheduler-extender")),
        (
            {"leader_mode": "own", "pod_namespace": "hami"},
            "own",
            ("hami", "hami-scheduler-extender"),
        ),
    ],
)
def test_hamis_leader_flag_observes_the_kube_scheduler_beside_us(tmp_path, flags, election, lease):
    config = loaded(tmp_path, **flags)
    assert (config.election, config.lease) == (election, lease)


@pytest.mark.parametrize(
    "flags",
    [
        {"leader_mode": "own", "leader_elect_renew_deadline": "4.9s"},
        {"leader_mode": "own", "bind_timeout": "10s"},
        {"leader_mode": "colocated", "leader_elect_renew_deadline": "4.8s"},
        {"leader_mode": "none", "bind_timeout": "20s", "shutdown_grace": "20s"},
    ],
)
def test_times_that_leave_room_for_two_renewals_are_taken(tmp_path, flags):
    assert loaded(tmp_path, **flags)


def test_the_rule_for_renewals_knows_how_long_one_waits():
    assert own_lease.RETRY_JITTER == RETRY_JITTER


@pytest.mark.parametrize(
    ("flags", "tls"),
    [
        ({}, False),
        ({"client_ca_file": "a"}, True),
        ({"extender_tls": "true"}, True),
        ({"extender_bind": ":1", "insecure_extender": "true"}, True),
        ({"extender_bind": ":1", "insecure_extender": "true", "extender_tls": "false"}, False),
    ],
)
def test_the_extender_speaks_tls_beyond_loopback_or_when_told(tmp_path, flags, tls):
    config = loaded(tmp_path, cert_file="c", key_file="k", **flags)
    assert config.extender_speaks_tls == tls


def test_the_policies_and_the_webhooks_rules_follow_hamis_flags(tmp_path):
    config = loaded(
        tmp_path,
        scheduler_name="mine",
        force_overwrite_default_scheduler="false",
        node_scheduler_policy="spread",
        gpu_scheduler_policy="binpack,topology-aware",
        quota_admission="deny",
    )
    admission = config.admission
    assert (admission.scheduler_name, admission.take_default_scheduler, admission.quota) == (
        "mine",
        False,
        "deny",
    )
    assert admission.policy.node is NodePolicy.SPREAD
    assert (admission.policy.device.chain, admission.policy.device.topology_aware) == (
        ("binpack",),
        True,
    )


def test_the_kubernetes_client_gets_its_settings(tmp_path):
    config = loaded(tmp_path, kubeconfig="/k", kube_context="c", kube_qps="50", kube_timeout="0")
    kube = config.kube
    assert (str(kube.kubeconfig), kube.context, kube.qps, kube.burst, kube.timeout) == (
        "/k",
        "c",
        50.0,
        10,
        30.0,
    )


@pytest.mark.parametrize("text", ["0", ""])
def test_metrics_may_be_served_nowhere(tmp_path, text):
    assert loaded(tmp_path, metrics_bind_address=text).metrics_bind_address == ""


@pytest.mark.parametrize(
    ("secret", "found"),
    [("", None), ("keys", ("kube-system", "keys")), ("hami/keys", ("hami", "keys"))],
)
def test_a_signing_secret_has_a_namespace(tmp_path, secret, found):
    assert loaded(tmp_path, signing_key_secret=secret).signing_secret == found


# The device configuration.


CHART = """
nvidia:
  resourceCountName: acme.com/gpu
  defaultMemory: 500
hygon: {memoryFactor: 256}
metax: {resourceCountName: metax-tech.com/gpu}
"""


def test_hamis_device_configuration_reaches_the_plugins(tmp_path):
    path = a_file(tmp_path / "device-config.yaml", CHART)
    devices = loaded(tmp_path, device_config_file=str(path)).devices
    vendors = load_vendors(devices)
    assert vendors["NVIDIA"].profile.resources.count == "acme.com/gpu"
    assert vendors["DCU"].profile.memory_factor == 256
    names = [plugin.name for plugin in installed_plugins()]
    (text,) = unread_sections(devices, names)
    assert text == (
        "device configuration: no installed plugin reads the section 'metax'; install the "
        "vendor's plugin, or remove the section"
    )


def test_a_section_of_the_device_configuration_replaces_the_one_in_the_file(tmp_path):
    path = a_file(tmp_path / "d.yaml", "nvidia: {defaultCores: 1}")
    text = (
        f"device-config-file: {path}\ndevices: {{nvidia: {{defaultMemory: 5}}, mock: {{node: n}}}}"
    )
    assert loaded(tmp_path, text).devices == {"nvidia": {"defaultCores": 1}, "mock": {"node": "n"}}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {"hygon": {"resourceCountName": "x.com/d"}}),
        ("hygon:", {"hygon": {"resourceCountName": "x.com/d"}}),
        (
            "hygon: {memoryFactor: 2}",
            {"hygon": {"memoryFactor": 2, "resourceCountName": "x.com/d"}},
        ),
        ("hygon: {resourceCountName: y.com/d}", {"hygon": {"resourceCountName": "y.com/d"}}),
    ],
)
def test_hamis_flags_for_resource_names_fill_what_the_configuration_leaves_out(
    tmp_path, text, expected
):
    path = a_file(tmp_path / "d.yaml", text)
    foreign = {"dcu-name": "x.com/d", "debug": "true"}
    assert loaded(tmp_path, foreign=foreign, device_config_file=str(path)).devices == expected


def test_a_flag_of_hami_without_effect_is_said_to_have_none():
    source = ConfigSource(foreign={"profiling": "true", "dcu-name": "x"})
    assert source.warnings == ["--profiling has no effect here; leave it out"]


def test_no_flag_of_hami_is_two_things():
    ours = {key_of(name) for name in FLAG_FIELDS}
    assert not ours & (WITHOUT_EFFECT | RESOURCE_NAMES.keys())
    assert not WITHOUT_EFFECT & RESOURCE_NAMES.keys()


# Printing.


@pytest.mark.parametrize(
    "flags",
    [
        {},
        {"http_bind": "127.0.0.1:0"},
        {
            "node_lock_timeout": "1h2m3.5s",
            "extender_tls": "false",
            "cert_file": "a",
            "key_file": "b",
        },
        {"leader_mode": "own", "kube_qps": "7.5", "metrics_bind_address": "0"},
    ],
)
def test_printed_settings_are_read_back_alike(tmp_path, flags):
    text = "devices: {mock: {node: n}}"
    config = loaded(tmp_path, text, **flags)
    assert loaded(tmp_path, as_yaml(config)).model_dump() == config.model_dump()
    assert list(yaml.safe_load(as_yaml(config))) == [key_of(n) for n in SCHEDULER.fields]


# Durations.


@pytest.mark.parametrize(
    ("text", "seconds", "printed"),
    [
        ("5m", 300, "5m0s"),
        ("28s", 28, "28s"),
        ("300ms", 0.3, "300ms"),
        ("1h2m3.5s", 3723.5, "1h2m3.5s"),
        ("1.5h", 5400, "1h30m0s"),
        ("0", 0, "0s"),
        ("5", 5, "5s"),
        (15, 15, "15s"),
        (0.25, 0.25, "250ms"),
        ("100us", 0.0001, "100µs"),
        ("1500µs", 0.0015, "1.5ms"),
        ("0h5m", 300, "5m0s"),
    ],
)
def test_durations_are_gos(text, seconds, printed):
    assert seconds_of(text) == pytest.approx(seconds)
    assert go_duration(seconds) == printed


@pytest.mark.parametrize("value", ["", "5 m", "-5s", "5mm", "s", "1e9h", "٣s", True, None, [], -1, float("nan"), float("inf")])  # fmt: skip
def test_what_is_no_duration_is_refused(value):
    with pytest.raises(ValueError, match="for example 5m, 28s or 300ms"):
        seconds_of(value)


# A changed file.


class Watched:
    """A watcher on two files, and what it handed on."""

    def __init__(self, tmp_path):
        self.main = a_file(tmp_path / "c.yaml", f"device-config-file: {tmp_path}/d.yaml")
        self.devices = a_file(tmp_path / "d.yaml", "nvidia: {defaultCores: 1}")
        self.taken: list[SchedulerConfig] = []
        self.refuse: str | None = None
        source = ConfigSource(file=self.main)
        self.watcher = ConfigWatcher(source, source.load(), self.apply, interval=0.01)

    def apply(self, config: SchedulerConfig) -> None:
        if self.refuse:
            raise ConfigError(self.refuse)
        self.taken.append(config)

    async def until(self, condition) -> None:
        task = asyncio.create_task(self.watcher.run())
        try:
            async with asyncio.timeout(30):
                while not condition():
                    await asyncio.sleep(0.005)
        finally:
            task.cancel()


@pytest.fixture
def watched(tmp_path) -> Watched:
    return Watched(tmp_path)


async def test_a_changed_file_is_taken_over(watched, logged):
    with watched.main.open("a") as file:
        file.write("\nquota-admission: deny\n")
    await watched.until(lambda: watched.taken)
    assert watched.watcher.running.quota_admission == "deny"
    assert [(e["event"], e["settings"]) for e in logged] == [
        ("the configuration has changed", ["quota-admission"])
    ]


async def test_a_changed_device_configuration_is_taken_over_once(watched, logged):
    watched.devices.write_text("nvidia: {defaultCores: 2}")
    await watched.until(lambda: watched.taken)
    assert [c.devices for c in watched.taken] == [{"nvidia": {"defaultCores": 2}}]


async def test_a_mounted_configuration_changes_by_a_swapped_link(tmp_path, logged):
    for name, cores in (("one", 1), ("two", 2)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "d.yaml").write_text(f"nvidia: {{defaultCores: {cores}}}")
    (tmp_path / "data").symlink_to("one")
    (tmp_path / "d.yaml").symlink_to("data/d.yaml")
    source = ConfigSource(flags={"device_config_file": str(tmp_path / "d.yaml")})
    taken: list[SchedulerConfig] = []
    watcher = ConfigWatcher(source, source.load(), taken.append)
    (tmp_path / "next").symlink_to("two")
    (tmp_path / "next").replace(tmp_path / "data")
    assert watcher._files.changed()
    await watcher.reload()
    assert [c.devices for c in taken] == [{"nvidia": {"defaultCores": 2}}]


@pytest.mark.parametrize("text", ["nvidia: [", "", "quota-admission: x"])
async def test_a_configuration_that_cannot_be_used_is_kept_out(watched, logged, text):
    before = watched.watcher.running
    if text:
        watched.main.write_text(text)
    else:
        watched.devices.unlink()
    await watched.watcher.reload()
    assert (watched.watcher.running, watched.taken) == (before, [])
    assert [(e["log_level"], e["event"]) for e in logged] == [
        ("warning", "the configuration stays as it was")
    ]


async def test_what_the_service_refuses_is_kept_out_and_tried_again_when_it_changes(
    watched, logged
):
    before = watched.watcher.running
    watched.refuse = "nvidia.defaultCores: 'x': write a number"
    watched.devices.write_text("nvidia: {defaultCores: x}")
    await watched.until(lambda: logged)
    assert watched.watcher.running == before
    assert logged[0]["problem"] == watched.refuse
    watched.refuse = None
    watched.devices.write_text("nvidia: {defaultCores: 3}")
    await watched.until(lambda: watched.taken)
    assert watched.watcher.running.devices == {"nvidia": {"defaultCores": 3}}


async def test_a_setting_that_needs_a_restart_is_said_and_left(watched, logged):
    with watched.main.open("a") as file:
        file.write("\nbind-timeout: 1s\nlog-level: debug\n")
    await watched.watcher.reload()
    assert logged[0]["event"] == "changed settings wait for a restart"
    assert logged[0]["settings"] == ["bind-timeout"]
    assert [(c.bind_timeout, c.log_level) for c in watched.taken] == [(5.0, "debug")]
