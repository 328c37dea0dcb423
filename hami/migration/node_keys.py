"""Keys of HAMi's values.yaml about its device plugin and its monitor, on the nodes."""

from __future__ import annotations

from hami.migration import keys, rules
from hami.migration.keys import HamiKey, not_honoured, same, translated, without_effect
from hami.migration.scheduler_keys import image_keys

_OWN_RIGHTS = "the chart gives each container the rights that it needs, and a reason for each"
_WAITS = "the agent waits for the driver by itself, and serves once it is there"
SAMPLE = "(a sample entry for your-node-name)"
"""Stands for the text of HAMi's values.yaml, which is an example and about no node."""
_NO_SERVICE = (
    "the monitors' Service is headless and has the chart's labels; scrape the pods, on port 9394"
)


def plugin_keys() -> tuple[HamiKey, ...]:
    plugin = "devicePlugin"
    return (
        same(f"{plugin}.enabled", True, f"{rules.PLUGIN}.enabled", keys.flag),
        without_effect(f"{plugin}.gpuOperatorToolkitReady.enabled", False, _WAITS),
        without_effect(
            f"{plugin}.gpuOperatorToolkitReady.hostPath", "/run/nvidia/validations", _WAITS
        ),
        without_effect(
            f"{plugin}.gpuOperatorToolkitReady.securityContext",
            {"privileged": True, "runAsUser": 0},
            _WAITS,
        ),
        *image_keys(f"{plugin}.image"),
        *_device_keys(plugin),
        *_option_keys(plugin),
        *_pod_keys(plugin),
        *_monitor_keys(f"{plugin}.monitor"),
    )


def _device_keys(plugin: str) -> tuple[HamiKey, ...]:
    def setting(name: str, default: object, read: keys.Reader) -> HamiKey:
        rule = rules.device_setting("nvidia", name, read)
        return translated(f"{plugin}.{name}", default, f"deviceConfig.nvidia.{name}", rule)

    return (
        setting("deviceSplitCount", 10, keys.whole),
        setting("deviceMemoryScaling", 1, keys.number),
        setting("deviceCoreScaling", 1, keys.number),
        setting("enableNumaTopology", False, keys.flag),
        setting("preConfiguredDeviceMemory", 0, keys.whole),
        translated(
            f"{plugin}.nodeConfiguration.config",
            SAMPLE,
            "nodeConfig: its entries",
            rules.node_entries,
        ),
        not_honoured(
            f"{plugin}.nodeConfiguration.externalConfigName",
            "",
            "no ConfigMap of yours is read; put its entries into nodeConfig",
        ),
        translated(
            f"{plugin}.runtimeClassName",
            "",
            "runtimeClassName of agents and monitors, and deviceConfig.nvidia.runtimeClassName",
            rules.runtime_class,
        ),
        without_effect(
            f"{plugin}.createRuntimeClass",
            False,
            "the RuntimeClass that HAMi's chart made stays when HAMi is uninstalled",
        ),
    )


def _option_keys(plugin: str) -> tuple[HamiKey, ...]:
    def option(name: str, default: object, flag: str, read: keys.Reader = keys.flag) -> HamiKey:
        where = f"{rules.PLUGIN}.args: --{flag}"
        return translated(f"{plugin}.{name}", default, where, rules.argument(flag, read))

    return (
        option("migStrategy", "none", "mig-strategy", keys.one_of("none", "single", "mixed")),
        without_effect(
            f"{plugin}.disablecorelimit",
            "false",
            "HAMi's plugin ignores the flag; deviceConfig.nvidia.disableCoreLimit would do it",
        ),
        option("passDeviceSpecsEnabled", False, "pass-device-specs"),
        option("deviceListStrategy", "envvar", "device-list-strategy", keys.text),
        option("nvidiaHookPath", None, "nvidia-cdi-hook-path", keys.text),
        translated(
            f"{plugin}.nvidiaDriverRoot",
            None,
            f"{rules.PLUGIN}: --nvidia-driver-root in args, and the host path",
            rules.driver_root,
        ),
        option("gdrcopyEnabled", None, "gdrcopy-enabled"),
        option("gdsEnabled", None, "gds-enabled"),
        option("mofedEnabled", None, "mofed-enabled"),
        translated(
            f"{plugin}.extraArgs",
            ["-v=4"],
            f"{rules.PLUGIN}.args; klog's flags, and those that HAMi's plugin ignores, do nothing",
            rules.plugin_arguments,
        ),
        translated(
            f"{plugin}.extraEnvs", {}, f"{rules.PLUGIN}.env, after the chart's own", rules.variables
        ),
    )


def _pod_keys(plugin: str) -> tuple[HamiKey, ...]:
    return (
        without_effect(f"{plugin}.service.type", "NodePort", _NO_SERVICE),
        without_effect(f"{plugin}.service.httpPort", 31992, _NO_SERVICE),
        not_honoured(f"{plugin}.service.labels", {}, _NO_SERVICE),
        not_honoured(f"{plugin}.service.annotations", {}, _NO_SERVICE),
        translated(
            f"{plugin}.pluginPath",
            "/var/lib/kubelet/device-plugins",
            "node.paths.kubelet, the directory above",
            rules.kubelet_path,
        ),
        without_effect(
            f"{plugin}.libPath", "/usr/local/vgpu", "it is global.gpuHookPath and /vgpu"
        ),
        same(f"{plugin}.podAnnotations", {}, "node.podAnnotations", keys.labels),
        without_effect(f"{plugin}.hostPID", True, "agents and monitors always have it"),
        not_honoured(f"{plugin}.hostNetwork", False, "agents and monitors have the pod network"),
        without_effect(
            f"{plugin}.securityContext",
            {
                "privileged": True,
                "allowPrivilegeEscalation": True,
                "capabilities": {"drop": ["ALL"], "add": ["SYS_ADMIN"]},
            },
            _OWN_RIGHTS,
        ),
        translated(
            f"{plugin}.nvidiaNodeSelector",
            {"gpu": "on"},
            "vendors.NVIDIA.selectors, as its only entry",
            rules.node_selector,
        ),
        same(f"{plugin}.tolerations", [], "node.tolerations", keys.mappings),
        translated(
            f"{plugin}.updateStrategy",
            {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}},
            "node.devicePlugin.updateStrategy: type and maxUnavailable",
            rules.update_strategy,
        ),
        same(f"{plugin}.resources", {}, "node.devicePlugin.resources", keys.resources),
    )


def _monitor_keys(monitor: str) -> tuple[HamiKey, ...]:
    return (
        *image_keys(f"{monitor}.image"),
        without_effect(
            f"{monitor}.ctrPath", "/usr/local/vgpu/containers", "it is below global.gpuHookPath"
        ),
        without_effect(
            f"{monitor}.resyncInterval",
            "5m",
            "the monitor watches its node's pods, without a resync",
        ),
        translated(
            f"{monitor}.extraArgs",
            ["-v=4"],
            "metrics.legacyNames; klog's flags do nothing",
            rules.monitor_arguments,
        ),
        translated(
            f"{monitor}.extraEnvs",
            {},
            f"{rules.PLUGIN}.env, which agents and monitors have",
            rules.variables,
        ),
        without_effect(
            f"{monitor}.securityContext",
            {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"], "add": ["SYS_ADMIN"]},
            },
            _OWN_RIGHTS,
        ),
        same(f"{monitor}.resources", {}, "node.monitor.resources", keys.resources),
    )
