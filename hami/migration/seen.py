"""What of a cluster counts when HAMi is to be replaced there: objects, and what we read of them."""

from __future__ import annotations

import base64
import binascii
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from hami.domain.errors import ConfigError
from hami.domain.kubernetes.objects import Lean, Metadata, Node, NodeStatus, Pod

SCHEDULER, PLUGIN = "hami-scheduler", "hami-device-plugin"
"""Values of the label app.kubernetes.io/component in HAMi's chart."""
_MOST_BYTES = 64 << 20
"""Of a release's text: Helm's Secrets have 1 MiB, packed."""


class NodeSoftware(Lean, frozen=True):
    kubelet_version: str = ""
    container_runtime_version: str = ""


class _ReportedStatus(NodeStatus, frozen=True):
    node_info: NodeSoftware = NodeSoftware()


class ReportedNode(Node, frozen=True):
    """A node with what kubelet says of itself."""

    status: _ReportedStatus | None = None

    @property
    def software(self) -> NodeSoftware:
        return self.status.node_info if self.status else NodeSoftware()


class PodTemplateSpec(Lean, frozen=True):
    node_selector: dict[str, str] | None = None
    service_account_name: str = ""
    affinity: dict[str, Any] | None = None


class PodTemplate(Lean, frozen=True):
    spec: PodTemplateSpec = PodTemplateSpec()


class WorkloadSpec(Lean, frozen=True):
    replicas: int | None = None
    template: PodTemplate = PodTemplate()
    update_strategy: dict[str, Any] | None = None


class HamiWorkload(Lean, frozen=True):
    """A Deployment or DaemonSet of HAMi's chart."""

    metadata: Metadata = Metadata()
    spec: WorkloadSpec = WorkloadSpec()

    def label(self, name: str) -> str:
        return (self.metadata.labels or {}).get(f"app.kubernetes.io/{name}", "")


class AdmissionHook(Lean, frozen=True):
    name: str = ""
    failure_policy: str = ""


class AdmissionHooks(Lean, frozen=True):
    """A MutatingWebhookConfiguration."""

    metadata: Metadata = Metadata()
    webhooks: list[AdmissionHook] | None = None


class ReleaseChart(Lean, frozen=True):
    metadata: dict[str, Any] = {}  # noqa: RUF012 -- msgspec copies it


class HelmRelease(Lean, frozen=True):
    """What Helm keeps of a release; ``config`` are the values that somebody gave."""

    name: str = ""
    version: int = 0
    config: dict[str, Any] | None = None
    chart: ReleaseChart = ReleaseChart()


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenCluster:
    """The cluster as it was read.

    ``hook`` is HAMi's webhook configuration, and ``values`` those of its release; None where there
    is none or it may not be read. ``denied`` are the rights that were missing.
    """

    schedulers: Sequence[HamiWorkload] = ()
    plugins: Sequence[HamiWorkload] = ()
    nodes: Sequence[ReportedNode] = ()
    pods: Sequence[Pod] = ()
    ignored_namespaces: Sequence[str] = ()
    hook: AdmissionHooks | None = None
    values: Mapping[str, Any] | None = None
    denied: Sequence[str] = ()


def read_release(data: str) -> HelmRelease:
    """The entry ``release`` of Helm's Secret: base64 twice, for Kubernetes and for Helm, then gzip.

    Raises:
        ConfigError: it is not what Helm writes.
    """
    try:
        packed = base64.b64decode(base64.b64decode(data, validate=True), validate=True)
        unpacking = zlib.decompressobj(wbits=31)
        text = unpacking.decompress(packed, _MOST_BYTES)
        if not unpacking.eof:
            raise zlib.error("too long, or cut off")  # noqa: TRY301 -- as zlib itself would say it
        return msgspec.json.decode(text, type=HelmRelease)
    except (binascii.Error, zlib.error, msgspec.MsgspecError, ValueError) as error:
        raise ConfigError(
            f"HAMi's release in the cluster cannot be read: {error}; name its values with --values"
        ) from error


def version_of(text: str) -> tuple[int, ...]:
    """``v1.31.2+k3s1`` as (1, 31, 2); empty where there is no version."""
    found = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", text)
    return tuple(int(part or 0) for part in found.groups()) if found else ()
