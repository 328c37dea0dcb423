"""What is done with a value of HAMi's that has no key of its own with us."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hami.domain.errors import ConfigError
from hami.migration import keys
from hami.migration.keys import Draft, Outcome, Rule, Unreadable, Verdict
from hami.settings.klog import KLOG
from hami.wire.yaml_mapping import read_mapping

CONTENT = "device-config.content"
PLUGIN = "vendors.NVIDIA.devicePlugin"

NVIDIA_NAMES = (
    ("resourceCountName", "nvidia.com/gpu"),
    ("resourceMemoryName", "nvidia.com/gpumem"),
    ("resourceMemoryPercentageName", "nvidia.com/gpumem-percentage"),
    ("resourceCoreName", "nvidia.com/gpucores"),
    ("resourcePriorityName", "nvidia.com/priority"),
)
DCU_NAMES = (
    ("resourceCountName", "hygon.com/dcunum"),
    ("resourceMemoryName", "hygon.com/dcumem"),
    ("resourceCoreName", "hygon.com/dcucores"),
)
OURS = ("nvidia", "hygon")
"""Sections of the device configuration that a plugin of this repository reads."""

_SCHEDULER_FLAGS = frozenset(
    {
        "node-scheduler-policy", "gpu-scheduler-policy", "node-label-selector", "node-lock-timeout",
        "node-lock-retry-timeout", "kube-qps", "kube-burst", "kube-timeout",
        "force-overwrite-default-scheduler", "legacy-metrics",
    }
)  # fmt: skip
_PLUGIN_FLAGS = frozenset(
    {
        "mig-strategy", "fail-on-init-error", "nvidia-driver-root", "dev-root", "nvidia-dev-root",
        "pass-device-specs", "device-list-strategy", "device-id-strategy", "gdrcopy-enabled",
        "gds-enabled", "mofed-enabled", "cdi-annotation-prefix", "nvidia-cdi-hook-path",
        "nvidia-ctk-path", "driver-root-ctr-path", "container-driver-root",
        "device-discovery-strategy", "imex-channel-ids", "imex-required",
    }
)  # fmt: skip
_DEAD_FLAGS = frozenset(
    {
        "device-split-count", "device-memory-scaling", "device-cores-scaling", "disable-core-limit",
        "resource-name",
    }
)  # fmt: skip
"""HAMi's plugin takes these and does nothing with them; ours would."""
_IDLE = KLOG | {"debug", "profiling"}


def _done(text: str) -> Outcome:
    return Outcome(verdict=Verdict.TRANSLATED, text=text)


def _lost(text: str) -> Outcome:
    return Outcome(verdict=Verdict.LOST, text=text)


def _idle(text: str) -> Outcome:
    return Outcome(verdict=Verdict.NO_EFFECT, text=text)


def to(path: str, read: keys.Reader, remark: str = "") -> Rule:
    """Write it there, in our form."""

    def rule(draft: Draft, value: Any) -> Outcome:
        draft.write(path, read(value))
        return _done(f"{path}{remark and f'; {remark}'}")

    return rule


def argument(name: str, read: keys.Reader = keys.text) -> Rule:
    """An option of NVIDIA's agent."""

    def rule(draft: Draft, value: Any) -> Outcome:
        found = read(value)
        shown = str(found).lower() if isinstance(found, bool) else found
        draft.add(f"{PLUGIN}.args", [f"--{name}={shown}"])
        return _done(f"{PLUGIN}.args: --{name}={shown}")

    return rule


def device_setting(section: str, name: str, read: keys.Reader) -> Rule:
    """A key of the device configuration, which HAMi's chart writes unless it is given whole."""

    def rule(draft: Draft, value: Any) -> Outcome:
        if draft.theirs(CONTENT):
            return _idle(f"{CONTENT} goes before it, for HAMi too")
        path = f"deviceConfig.{section}.{name}"
        draft.write(path, read(value))
        return _done(path)

    return rule


def resource_name(section: str, name: str) -> Rule:
    """A resource's name stands in the device configuration and in the list for kube-scheduler."""
    inner = device_setting(section, name, keys.filled)

    def rule(draft: Draft, value: Any) -> Outcome:
        outcome = inner(draft, value)
        if outcome.verdict is Verdict.TRANSLATED:
            vendor = _manage(draft, section)
            return _done(f"{outcome.text} and vendors.{vendor}.managedResources")
        return outcome

    return rule


def _manage(draft: Draft, section: str) -> str:
    """Write the vendor's resources as the device configuration names them; the vendor."""
    vendor, names = ("NVIDIA", NVIDIA_NAMES) if section == "nvidia" else ("DCU", DCU_NAMES)
    written = draft.read(f"deviceConfig.{section}") or {}
    found = [keys.filled(written.get(name) or usual) for name, usual in names]
    usual = [name for _, name in names]
    if vendor == "DCU" or found != usual:
        draft.write(f"vendors.{vendor}.enabled", True)  # noqa: FBT003 -- a value, not a flag
        draft.write(f"vendors.{vendor}.managedResources", found)
    return vendor


def registry(draft: Draft, value: Any) -> Outcome:
    """HAMi's global registry goes before every image's own."""
    found = keys.text(value)
    draft.write("image.registry", found)
    draft.write("kubeScheduler.image.registry", found)
    return _done("image.registry and kubeScheduler.image.registry; put hami's images there")


def kube_scheduler_registry(draft: Draft, value: Any) -> Outcome:
    if draft.theirs("global.imageRegistry"):
        return _idle("global.imageRegistry goes before it, for HAMi too")
    draft.write("kubeScheduler.image.registry", keys.text(value))
    return _done("kubeScheduler.image.registry")


def pull_secrets(draft: Draft, value: Any) -> Outcome:
    """HAMi has names, a pod has ``{name: ...}``."""
    if not isinstance(value, list):
        raise Unreadable("must be a list of names")
    named = [item.get("name") if isinstance(item, Mapping) else item for item in value]
    draft.add("image.pullSecrets", [{"name": keys.filled(name)} for name in named])
    return _done("image.pullSecrets, which all pods have; the Secrets must be in their namespace")


def pull_policy(draft: Draft, value: Any) -> Outcome:
    found = keys.one_of("Always", "IfNotPresent", "Never")(value)
    former = draft.read("image.pullPolicy")
    if former not in (None, found):
        return _lost(f"image.pullPolicy is one for all images, and {former} already")
    draft.write("image.pullPolicy", found)
    return _done("image.pullPolicy, which is one for all images")


def hook_path(draft: Draft, value: Any) -> Outcome:
    found = keys.path(value)
    draft.add(f"{PLUGIN}.args", [f"--hook-path={found}"])
    _host_paths(draft)
    return _done(f"{PLUGIN}: --hook-path={found} and the host path {found}/vgpu")


def driver_root(draft: Draft, value: Any) -> Outcome:
    found = keys.path(value)
    draft.add(f"{PLUGIN}.args", [f"--nvidia-driver-root={found}"])
    _host_paths(draft)
    return _done(f"{PLUGIN}: --nvidia-driver-root={found} and the host path {found}")


def _host_paths(draft: Draft) -> None:
    """A list replaces the chart's whole list, so all of it is written."""
    hook = keys.path(draft.theirs("global.gpuHookPath"))
    root = keys.path(draft.theirs("devicePlugin.nvidiaDriverRoot") or "/")
    draft.write(f"{PLUGIN}.hostPaths", host_paths(hook, root))


def host_paths(hook: str, root: str) -> list[dict[str, Any]]:
    """The directories of the node that NVIDIA's agent needs."""
    return [
        {"name": "library", "path": f"{hook}/vgpu"},
        {"name": "vgpulock", "path": "/tmp/vgpulock"},  # noqa: S108 -- HAMi's, on the node
        {"name": "driver-root", "path": root, "mountPath": "/driver-root", "readOnly": True},
    ]


def usual_variables() -> list[dict[str, Any]]:
    """What NVIDIA's agent has in the chart; a list of one's own replaces it."""
    return [
        {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
        {"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "utility"},
        {"name": "NVIDIA_MIG_MONITOR_DEVICES", "value": "all"},
    ]


def variables(draft: Draft, value: Any) -> Outcome:
    """HAMi writes the value into the pod as it is, so it is a list; its default says a mapping."""
    found = (
        [{"name": str(name), "value": str(one)} for name, one in value.items()]
        if isinstance(value, Mapping)
        else keys.mappings(value)
    )
    if not all(one.get("name") for one in found):
        raise Unreadable("must be a list of variables with a name each")
    draft.add(f"{PLUGIN}.env", found, first=usual_variables())
    return _done(f"{PLUGIN}.env, which agents and monitors have")


def node_name(draft: Draft, value: Any) -> Outcome:
    draft.write("scheduler.nodeSelector", {"kubernetes.io/hostname": keys.text(value)})
    return _done("scheduler.nodeSelector: kubernetes.io/hostname")


def label_selector(draft: Draft, value: Any) -> Outcome:
    wanted = ",".join(f"{name}={one}" for name, one in keys.labels(value).items())
    draft.write("scheduler.settings.node-label-selector", wanted)
    return _done(f"scheduler.settings.node-label-selector: {wanted}")


def node_selector(draft: Draft, value: Any) -> Outcome:
    wanted = keys.labels(value)
    draft.write("vendors.NVIDIA.selectors", [wanted] if wanted else [])
    return _done("vendors.NVIDIA.selectors" + ("" if wanted else ": every node"))


def webhook_url(draft: Draft, _: Any) -> Outcome:
    group = "scheduler.admissionWebhook.customURL"
    if not keys.flag(draft.theirs(f"{group}.enabled")):
        return _idle(f"{group}.enabled is false")
    host, port = draft.theirs(f"{group}.host"), keys.whole(draft.theirs(f"{group}.port"))
    shown = f"[{host}]" if ":" in str(host) else host
    draft.write("webhooks.url", f"https://{shown}:{port}")
    return _done(f"webhooks.url: https://{shown}:{port}")


def webhook_path(draft: Draft, value: Any) -> Outcome:
    if not keys.flag(draft.theirs("scheduler.admissionWebhook.customURL.enabled")):
        return _idle("scheduler.admissionWebhook.customURL.enabled is false")
    return _lost(f"hami answers at /webhook; have {keys.text(value)} lead there")


def certificates(draft: Draft, value: Any) -> Outcome:
    if keys.flag(value):
        draft.write("certificate.source", "cert-manager")
    return _done("certificate.source: cert-manager")


def kubelet_path(draft: Draft, value: Any) -> Outcome:
    found = keys.path(value)
    if not found.endswith("/device-plugins"):
        return _lost("node.paths.kubelet is the directory above device-plugins; mount it there")
    draft.write("node.paths.kubelet", found.removesuffix("/device-plugins") or "/")
    return _done("node.paths.kubelet")


def runtime_class(draft: Draft, value: Any) -> Outcome:
    found = keys.text(value)
    draft.write(f"{PLUGIN}.runtimeClassName", found)
    draft.write("node.monitor.runtimeClassName", found)
    places = f"{PLUGIN}.runtimeClassName and node.monitor.runtimeClassName"
    if draft.theirs(CONTENT):
        return _done(f"{places}; of pods that ask, {CONTENT} says it")
    draft.write("deviceConfig.nvidia.runtimeClassName", found)
    return _done(f"{places}, and for pods deviceConfig.nvidia.runtimeClassName")


def update_strategy(draft: Draft, value: Any) -> Outcome:
    found = keys.mapping(value)
    kind = keys.one_of("RollingUpdate", "OnDelete")(found.get("type", "RollingUpdate"))
    written: dict[str, Any] = {"type": kind}
    rolling = keys.mapping(found.get("rollingUpdate") or {})
    if kind == "RollingUpdate" and "maxUnavailable" in rolling:
        written["maxUnavailable"] = _share(rolling["maxUnavailable"])
    draft.write("node.devicePlugin.updateStrategy", written)
    if rolling.get("maxSurge"):
        return _lost("there is no maxSurge: two agents cannot serve one node")
    return _done("node.devicePlugin.updateStrategy")


def _share(value: Any) -> int | str:
    """A number of nodes, or a share of them."""
    shown = keys.text(value)
    return shown if shown.endswith("%") else keys.whole(shown)


def node_entries(draft: Draft, value: Any) -> Outcome:
    """HAMi's config.json."""
    if draft.theirs("devicePlugin.nodeConfiguration.externalConfigName"):
        return _idle("externalConfigName goes before it, for HAMi too")
    try:
        read = json.loads(keys.text(value))
    except ValueError as error:
        raise Unreadable(f"must be JSON: {error}") from error
    found = keys.mappings(read.get("nodeconfig") if isinstance(read, Mapping) else None)
    entries = [entry for entry in found if entry and entry.get("name") != "your-node-name"]
    if not entries:
        return _idle("it is the sample of HAMi's chart, about no node")
    draft.write("nodeConfig", entries)
    return _done("nodeConfig")


def device_config(draft: Draft, value: Any) -> Outcome:
    """The whole device-config.yaml, in place of the one that HAMi's chart would write."""
    try:
        sections = read_mapping(CONTENT, keys.text(value))
    except ConfigError as error:
        raise Unreadable(str(error)) from error
    for section in OURS:
        found = sections.get(section)
        if isinstance(found, Mapping):
            draft.write(f"deviceConfig.{section}", dict(found))
            _manage(draft, section)
    left = sorted(set(sections) - set(OURS))
    where = f"deviceConfig: {', '.join(sorted(set(sections) & set(OURS))) or 'nothing'}"
    if left:
        return _lost(f"{where}; no plugin here reads {', '.join(left)}")
    return _done(where)


def scheduler_arguments(draft: Draft, value: Any) -> Outcome:
    def take(name: str, text: str) -> str:
        draft.write(f"scheduler.settings.{name}", _scalar(text))
        return f"scheduler.settings.{name}"

    return _arguments(value, dict.fromkeys(_SCHEDULER_FLAGS, take), _IDLE)


def kube_scheduler_arguments(draft: Draft, value: Any) -> Outcome:
    paths = {
        "v": ("kubeScheduler.verbosity", 0),
        "kube-api-qps": ("kubeScheduler.qps", 1),
        "kube-api-burst": ("kubeScheduler.burst", 1),
    }

    def take(name: str, text: str) -> str:
        path, least = paths[name]
        draft.write(path, keys.at_least(least)(text))
        return path

    return _arguments(value, dict.fromkeys(paths, take), (KLOG - {"v"}) | {"config"})


def plugin_arguments(draft: Draft, value: Any) -> Outcome:
    def take(name: str, text: str) -> str:
        draft.add(f"{PLUGIN}.args", [f"--{name}={text}"])
        return f"{PLUGIN}.args: --{name}"

    return _arguments(value, dict.fromkeys(_PLUGIN_FLAGS, take), _IDLE | _DEAD_FLAGS)


def monitor_arguments(draft: Draft, value: Any) -> Outcome:
    def take(_: str, text: str) -> str:
        draft.write("metrics.legacyNames", keys.flag(text))
        return "metrics.legacyNames"

    return _arguments(value, {"legacy-metrics": take}, _IDLE)


def _arguments(
    value: Any, taken: Mapping[str, Callable[[str, str], str]], idle: Sequence[str] | frozenset[str]
) -> Outcome:
    """Flags, each with its value behind ``=``; a lone one is true."""
    done: list[str] = []
    dropped: list[str] = []
    lost: list[str] = []
    for word in keys.texts(value):
        name, _, text = word.lstrip("-").partition("=")
        if name in taken:
            done.append(taken[name](name, text or "true"))
        else:
            (dropped if name in idle else lost).append(word)
    said = [", ".join(done)] if done else []
    if dropped:
        said.append(f"without effect: {' '.join(dropped)}")
    if lost:
        said.append(f"not understood: {' '.join(lost)}")
    text = "; ".join(said) or "nothing"
    if lost:
        return _lost(text)
    return _done(text) if done else _idle(text)


def _scalar(text: str) -> Any:
    if text in ("true", "false"):
        return text == "true"
    try:
        return keys.number(text)
    except Unreadable:
        return text
