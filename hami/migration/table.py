"""Every key of HAMi 2.10's values.yaml, and defaults of ours that differ from HAMi's."""

from __future__ import annotations

from dataclasses import dataclass

from hami.migration.keys import HamiKey
from hami.migration.node_keys import plugin_keys
from hami.migration.scheduler_keys import release_keys, scheduler_keys
from hami.migration.vendor_keys import device_keys, name_keys

VERSION = "2.10"


def hami_keys() -> dict[str, HamiKey]:
    """By name, in the order in which their rules are applied."""
    found = (*release_keys(), *name_keys(), *scheduler_keys(), *plugin_keys(), *device_keys())
    return {key.name: key for key in found}


def hami_resources() -> tuple[str, ...]:
    """The extended resources of all vendors that HAMi's scheduler knows, by their usual names."""
    found: list[str] = []
    for name, key in hami_keys().items():
        if name.endswith(".customresources"):
            found += key.default
        elif "Resource" in name or name.startswith("resource"):
            found.append(key.default)
    return tuple(dict.fromkeys(found))


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A default of ours that is another one than that of HAMi's ``key``.

    ``keep`` is what to write into our values to have it as HAMi has it.
    """

    key: str
    text: str
    keep: str


DIFFERENCES = (
    Difference(
        key="scheduler.admissionWebhook.failurePolicy",
        text="while no scheduler runs, no pod that asks for devices is created",
        keep="webhooks.pods.failurePolicy: Ignore",
    ),
    Difference(
        key="scheduler.admissionWebhook.objectSelector.matchExpressions",
        text="the label hami.io/webhook: ignore is no way past the webhook",
        keep="webhooks.pods.ignoreLabel: true",
    ),
    Difference(
        key="scheduler.overwriteEnv",
        text="a container without devices sees none, whatever its image says",
        keep="deviceConfig.nvidia.overwriteEnv: false",
    ),
    Difference(
        key="scheduler.replicas",
        text="two replicas, one of which leads",
        keep="scheduler.replicas: 1",
    ),
    Difference(
        key="scheduler.kubeScheduler.image.registry",
        text="kube-scheduler comes from registry.k8s.io",
        keep="kubeScheduler.image: {registry: registry.cn-hangzhou.aliyuncs.com, "
        "repository: google_containers/kube-scheduler}",
    ),
    Difference(
        key="scheduler.service.type",
        text="the scheduler has no node port: scrape port 9395 of its Service, not port 31993",
        keep="scheduler.service.type: NodePort",
    ),
    Difference(
        key="devicePlugin.service.httpPort",
        text="monitors have no node port: scrape port 9394 of their pods, not port 31992",
        keep="",
    ),
    Difference(
        key="devicePlugin.nvidiaNodeSelector",
        text="agents also run where Node or GPU Feature Discovery found GPUs",
        keep='vendors.NVIDIA.selectors: [{gpu: "on"}]',
    ),
    Difference(
        key="devicePlugin.tolerations",
        text="agents and monitors tolerate every taint",
        keep="node.tolerations: []",
    ),
    Difference(
        key="dcuResourceName",
        text="Hygon's DCU are not scheduled",
        keep="vendors.DCU.enabled: true",
    ),
)
