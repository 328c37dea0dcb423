"""Every option, as flag and as variable, from the command line to what it changes.

The words go through ``hami device-plugin --print-config``; what that prints is what the agent
would serve with, and the plugin's hooks are asked under it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from hami_nvidia import NvidiaVendor
from hami_nvidia.handover.agent_cdi import SpecFailed
from hami_nvidia.nvml.interface import NvmlAway
from hami_nvidia.schedule.topology import PAIR_SCORES
from hami_nvidia.settings.options import NODE_OPTIONS
from typer.testing import CliRunner

from hami.cli.app import app
from hami.node.settings.source import AgentSource, plugin_config

from ..node_builders import (
    a_grant,
    a_library,
    a_node,
    a_slice,
    gpu_ids,
    section_of,
    with_files,
    with_node_spec,
)

CHANNEL = "/dev/nvidia-caps-imex-channels/channel0"
FILES = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia2", CHANNEL)
VARIABLES = {name: None for option in NODE_OPTIONS for name in option.variables}
OPTIONS_OF_THE_FILE = ("simulatedNVML", "hookPath", "library", "containerDriverRoot")
"""What says where this node is: an option that is being tried is left out of the file."""


class Served:
    """A node with two linked GPUs and one that is cut, and the agent's configuration of it."""

    def __init__(self, folder: Path, words: list[str], variables: dict[str, str], key: str) -> None:
        self.folder = folder
        gpus = [{"model": "a100-40g", "count": 2}, {"model": "a100-40g", "mig": True}]
        self.node = a_node(folder, gpus, identity="lock")
        self.gpus = gpu_ids(self.node)
        with_node_spec(self.node, {id: f"/dev/nvidia{n}" for n, id in enumerate(self.gpus)})
        with_files(self.node, *FILES)
        cut, nvml = self.gpus[2], self.node.nvml
        profile = nvml.instance_profiles(cut)[0]
        nvml.create_compute(cut, nvml.create_instance(cut, profile, profile.spans[0]))
        self.mig = nvml.mig_devices(cut)[0].uuid
        self.config = self._configured(words, variables, key)
        self.plugin = NvidiaVendor()

    def _configured(self, words: list[str], variables: dict[str, str], key: str) -> Any:
        section = section_of(self.node)
        if key in OPTIONS_OF_THE_FILE:
            del section[key]
        devices = self.folder / "devices.yaml"
        devices.write_text(yaml.safe_dump({"nvidia": section}))
        cdi = self.node.settings.cdi_dir
        result = CliRunner().invoke(
            app,
            ["device-plugin", "--vendor=nvidia", "--node-name=worker-1", "--print-config", "--identity=lock",
             f"--config-file={devices}", f"--cdi-dir={cdi}", f"--cdi-read-dirs={cdi}", *words],
            env={**VARIABLES, **variables},
        )  # fmt: skip
        assert result.exit_code == 0, result.output
        printed = self.folder / "printed.yaml"
        # Everything is in it already; the device configuration would be put over it once more.
        settings = yaml.safe_load(result.stdout) | {"device-config": None}
        printed.write_text(yaml.safe_dump({k: v for k, v in settings.items() if v is not None}))
        loaded = AgentSource(file=printed, environment={}).load()
        return plugin_config(loaded, labels={}, identity="lock")

    def devices(self):
        return self.plugin.hami_discover(config=self.config)

    def answer(self):
        slice = a_slice(self.node, a_grant(self.gpus[0]))
        return self.plugin.hami_enforce(slice=slice, config=self.config)

    def spec(self):
        """Our CDI spec."""
        self.answer()
        path = self.node.settings.cdi_dir / "k8s.device-plugin.nvidia.com-gpu.json"
        return path.read_text() if path.exists() else ""

    def after_xid(self, xid):
        """Which GPUs are healthy after an error of the first one."""
        whole = [device for device in self.devices() if device.id != self.gpus[2]]
        self.plugin.hami_check_health(devices=whole)
        self.node.nvml.state.add_event(xid, self.gpus[0])
        changes = self.plugin.hami_check_health(devices=whole)
        return [change.device_id for change in changes if not change.healthy] != [self.gpus[0]]

    def recovery(self):
        """The seconds, and that a GPU is never healthy again with 0."""
        self.devices()
        return self.plugin._opened.settings.health_recovery


def count(served):
    return served.plugin.hami_vendors(config=served.config)[0].resources.count


def slots(served):
    return served.devices()[0].slots


def memory(served):
    return served.devices()[0].memory_mib, served.answer().env.get("CUDA_OVERSUBSCRIBE")


def cores(served):
    return served.devices()[0].cores


def offered_mig(served):
    """Whether the MIG device is kubelet's to hand out."""
    static = served.plugin.hami_static_devices(config=served.config)
    return {name: [d.id == served.mig for d in devices] for name, devices in static.items()}


def without_driver(served):
    with served.node.nvml.state.changing() as state:
        state.away = "no driver"
    try:
        return len(served.devices())
    except NvmlAway:
        return "an error"


def variable(name):
    return lambda served: served.answer().env.get(name)


def device_files(served):
    return [node.host_path for node in served.answer().device_nodes][:1]


def nulls(served):
    return [m.container_path for m in served.answer().mounts if m.host_path == "/dev/null"] != []


def annotation(served):
    return [key.partition("/")[0] for key in served.answer().annotations]


def preload(served):
    return str(Path(served.answer().mounts[-1].host_path).relative_to(served.folder))


def library(served):
    return Path(served.answer().mounts[0].host_path).read_bytes()[-5:]


def hardware(served):
    return [device.model for device in served.devices()]


def reserve(served):
    """What the limits page charges for a context; identity ``lock`` has no page."""
    slice = a_slice(served.node, a_grant(served.gpus[0]), identity="kubelet")
    page = served.plugin.hami_enforce(slice=slice, config=served.config).page
    return dict(page.context_reserve_mib)[served.gpus[0]]


@dataclass(frozen=True)
class Row:
    """``look`` sees ``without`` when the option is not given, and ``with_`` when it is ``value``.

    ``beside``: other flags that must be there for it to matter.
    """

    key: str
    value: str
    look: Any
    without: Any
    with_: Any
    beside: tuple[str, ...] = ()

    @property
    def needed(self) -> bool:
        """Without it there is no such node in a test."""
        return self.without is None and self.key in OPTIONS_OF_THE_FILE


FILES_TOO = ("--pass-device-specs",)
CDI = ("--device-list-strategy=cdi-annotations",)
ROWS = [
    Row("resourceCountName", "acme.com/gpu", count, "nvidia.com/gpu", "acme.com/gpu"),
    Row("deviceSplitCount", "3", slots, 10, 3),
    Row("deviceMemoryScaling", "1.5", memory, (40960, None), (61440, "true")),
    Row("deviceCoreScaling", "2", cores, 100, 200),
    Row("disableCoreLimit", "true", variable("GPU_CORE_UTILIZATION_POLICY"), None, "disable"),
    Row("migStrategy", "mixed", offered_mig, {}, {"nvidia.com/mig-1g.5gb": [True]}),
    Row("deviceDiscoveryStrategy", "nvml", slots, 10, 10),
    Row("failOnInitError", "false", without_driver, "an error", 0),
    Row("deviceListStrategy", "volume-mounts", nulls, False, True),
    Row("deviceIDStrategy", "index", variable("NVIDIA_VISIBLE_DEVICES"), "{gpu}", "0"),
    Row("passDeviceSpecs", "true", device_files, [], ["/dev/nvidiactl"]),
    Row("gdrcopyEnabled", "true", variable("NVIDIA_GDRCOPY"), None, "enabled"),
    Row("gdsEnabled", "true", variable("NVIDIA_GDS"), None, "enabled"),
    Row("mofedEnabled", "true", variable("NVIDIA_MOFED"), None, "enabled"),
    Row("imexChannelIDs", "0", variable("NVIDIA_IMEX_CHANNELS"), None, "0"),
    Row("imexRequired", "true", lambda s: s.plugin._open(s.config).settings.imex_required, False, True),
    Row("cdiAnnotationPrefix", "own.io/", annotation, ["cdi.k8s.io"], ["own.io"], CDI),
    Row("nvidiaCDIHookPath", "/opt/ctk", lambda s: '"/opt/ctk"' in s.spec(), False, True, CDI),
    Row("nvidiaDriverRoot", "/run/driver", device_files, ["/dev/nvidiactl"], ["/run/driver/dev/nvidiactl"], (*FILES_TOO, "--container-driver-root={folder}/agent")),
    Row("nvidiaDevRoot", "/other", device_files, ["/dev/nvidiactl"], ["/other/dev/nvidiactl"], FILES_TOO),
    Row("containerDriverRoot", "{folder}/agent", device_files, ["/dev/nvidiactl"], ["/run/driver/dev/nvidiactl"], (*FILES_TOO, "--nvidia-driver-root=/run/driver")),
    Row("hookPath", "{folder}/other", preload, None, "other/vgpu/ld.so.preload"),
    Row("disableHealthChecks", "94", lambda s: s.after_xid(94), False, True),
    Row("enableHealthChecks", "31", lambda s: s.after_xid(31), True, False),
    Row("enableTopologyScore", "false", lambda s: s.devices()[0].extra.get(PAIR_SCORES) is None, False, True),
    Row("healthRecovery", "17", Served.recovery, 300.0, 17.0),
    Row("contextReserveMiB", "17", reserve, 442, 17),
    Row("library", "{folder}/libvgpu-other.so", library, None, b"other"),
    Row("cdiKind", "own.io/gpu", lambda s: "of kind own.io/gpu" in refusal(s), False, True, CDI),
    Row("simulatedNVML", "{folder}/other.yaml", hardware, None, ["NVIDIA L4"]),
]  # fmt: skip


def refusal(served):
    """There is no spec of another kind on this node."""
    try:
        served.answer()
    except SpecFailed as error:
        return str(error)
    return ""


def ways():
    for row in ROWS:
        option = next(option for option in NODE_OPTIONS if option.key == row.key)
        for name in (*option.flags, *option.variables):
            yield pytest.param(row, name, id=name)


def prepared(folder: Path) -> None:
    a_library(folder, b"other")
    (folder / "other.yaml").write_text("gpus: l4\n")


def served(folder: Path, row: Row, name: str = "") -> Served:
    folder.mkdir()
    prepared(folder)
    value = row.value.format(folder=folder)
    words = [word.format(folder=folder) for word in row.beside]
    words += [f"{name}={value}"] if name.startswith("--") else []
    variables = {name: value} if name and not name.startswith("--") else {}
    return Served(folder, words, variables, row.key if name or row.without is None else "")


@pytest.mark.parametrize(("row", "name"), [*ways()])
def test_an_option_reaches_what_it_is_about(tmp_path, row, name):
    given = served(tmp_path / "node", row, name)
    assert row.look(given) == row.with_


@pytest.mark.parametrize("row", [pytest.param(row, id=row.key) for row in ROWS if not row.needed])
def test_without_the_option_it_is_otherwise(tmp_path, row):
    given = served(tmp_path / "node", row)
    without = row.without.format(gpu=given.gpus[0]) if isinstance(row.without, str) else row.without
    assert row.look(given) == without


def test_every_option_has_a_row():
    assert sorted(row.key for row in ROWS) == sorted(option.key for option in NODE_OPTIONS)
