"""What a move to hami would change in a cluster of HAMi's, what it cannot keep, and who runs on."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from hami.domain.devices import Device
from hami.domain.kubernetes.objects import Pod
from hami.migration.conversion import Conversion
from hami.migration.seen import HamiWorkload, ReportedNode, SeenCluster, version_of
from hami.migration.table import hami_resources
from hami.policy.pods.accounting import account_of
from hami.policy.pods.escapes import escape_of
from hami.policy.pods.pod_request import who_asks
from hami.policy.ports import VendorRegistry
from hami.wire import keys

_REGISTER = re.compile(r"hami\.io/node-(?!handshake)(?:.+-register|register-.+)")
_TESTED = ((2, 9, 0), (2, 11, 0))
"""HAMi's versions whose annotations are those that we read: from, and below."""
_KUBELET, _CONTAINERD, _CRIO = (1, 29, 0), (2, 0, 0), (1, 28, 0)
"""From these on an agent learns from kubelet's records whose container it is."""
_MOST_NAMES = 5


class Bearing(StrEnum):
    """What a finding means for the move. ``LOST`` and ``UNKNOWN`` are to be decided on before."""

    LOST = "cannot be honoured"
    UNKNOWN = "not known"
    CHANGES = "changes"
    KEEPS = "keeps running"


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveFinding:
    """``about`` is a short name of the thing."""

    bearing: Bearing
    about: str
    text: str


def judge(
    seen: SeenCluster, vendors: VendorRegistry, conversion: Conversion | None
) -> tuple[MoveFinding, ...]:
    """Everything that somebody should know before; in the order in which people read it."""
    return (
        *_denials(seen),
        *_versions(seen),
        *_vendors(seen.nodes, vendors),
        *_nodes(seen.nodes, vendors),
        *_values(conversion),
        *_webhook(seen, vendors),
        *_pods(seen, vendors),
    )


def _denials(seen: SeenCluster) -> Iterator[MoveFinding]:
    for right in seen.denied:
        yield _found(Bearing.UNKNOWN, "rights", f"you may not {right}, so nothing is said of it")


def _versions(seen: SeenCluster) -> Iterator[MoveFinding]:
    for one in (*seen.schedulers, *seen.plugins):
        version = one.label("version")
        if version and not _TESTED[0] <= version_of(version) < _TESTED[1]:
            yield _found(
                Bearing.UNKNOWN,
                one.metadata.name,
                f"it is HAMi {version}, and this is for 2.9 and 2.10; bring HAMi to 2.10 first",
            )
    if len(seen.schedulers) > 1:
        names = _names([one.metadata.namespace for one in seen.schedulers])
        several = f"there are several, in {names}; the steps are for one"
        yield _found(Bearing.UNKNOWN, "HAMi", several)


def _vendors(nodes: Sequence[ReportedNode], vendors: VendorRegistry) -> Iterator[MoveFinding]:
    ours = {vendors[key].profile.node_annotations.register: key for key in vendors}
    strange: dict[str, list[str]] = {}
    served: dict[str, list[str]] = {}
    theirs = [name for name in hami_resources() if not vendors.manages(name)]
    for node in nodes:
        for name in theirs:
            if (node.allocatable or {}).get(name, "0") != "0":
                strange.setdefault(name, []).append(node.name)
        for annotation in node.annotations:
            if annotation in ours:
                served.setdefault(ours[annotation], []).append(node.name)
            elif _REGISTER.fullmatch(annotation):
                strange.setdefault(annotation, []).append(node.name)
    for what, names in sorted(strange.items()):
        yield _found(
            Bearing.LOST,
            what,
            f"no plugin here reads it: devices of {_names(names)} are no longer scheduled; write a "
            "profile of their vendor (hami plugin new --profile), or leave these nodes to HAMi",
        )
    for key, names in sorted(served.items()):
        if key != "NVIDIA":
            yield _found(
                Bearing.CHANGES,
                key,
                f"{_names(names)} have such devices: set vendors.{key}.enabled: true; HAMi's "
                "plugin for them stays, and our scheduler works with it",
            )


def _nodes(nodes: Sequence[ReportedNode], vendors: VendorRegistry) -> Iterator[MoveFinding]:
    modes: dict[str, list[str]] = {}
    old: list[str] = []
    for node in nodes:
        devices = list(_devices(node, vendors))
        for mode in sorted({device.mode for device in devices} - {"", "hami-core"}):
            modes.setdefault(mode, []).append(node.name)
        if devices and _needs_lock(node):
            old.append(node.name)
    for mode, names in sorted(modes.items()):
        if mode == "mig":
            yield _found(
                Bearing.CHANGES,
                "mode mig",
                f"{_names(names)}: an instance that no pod's annotation names, and that no process "
                "uses, is destroyed when our agent comes; keep a GPU of yours with filterdevices",
            )
        else:
            yield _found(
                Bearing.LOST, f"mode {mode}", f"{_names(names)}: our agents have no such mode"
            )
    if old:
        yield _found(
            Bearing.CHANGES,
            "identity",
            f"{_names(old)}: kubelet before 1.29, or a runtime without CDI: one pod at a time "
            "starts there, as with HAMi",
        )


def _devices(node: ReportedNode, vendors: VendorRegistry) -> Iterator[Device]:
    for key in vendors:
        found = vendors[key].node_devices(node)
        if isinstance(found, Sequence):
            yield from found


def _needs_lock(node: ReportedNode) -> bool:
    kubelet = version_of(node.software.kubelet_version)
    runtime, _, version = node.software.container_runtime_version.partition("://")
    least = {"containerd": _CONTAINERD, "cri-o": _CRIO}.get(runtime)
    old = bool(kubelet) and kubelet < _KUBELET
    return old or (least is not None and () < version_of(version) < least)


def _values(conversion: Conversion | None) -> Iterator[MoveFinding]:
    if conversion is None:
        yield _found(
            Bearing.UNKNOWN,
            "values",
            "HAMi's values are not known; name them with --values",
        )
        return
    for one in conversion.open:
        yield _found(Bearing.LOST, one.key, one.text)
    for difference in conversion.differences:
        keep = f"; to keep it: {difference.keep}" if difference.keep else ""
        yield _found(Bearing.CHANGES, difference.key, f"{difference.text}{keep}")


def _webhook(seen: SeenCluster, vendors: VendorRegistry) -> Iterator[MoveFinding]:
    asking = [pod for pod in seen.pods if who_asks(pod, vendors)]
    ignored = {pod.namespace for pod in asking} & set(seen.ignored_namespaces)
    if ignored:
        yield _found(
            Bearing.CHANGES,
            "hami.io/webhook: ignore",
            f"pods of {_names(sorted(ignored))} go past HAMi's webhook and not past ours; to keep "
            "it: webhooks.pods.ignoreLabel: true",
        )
    refused = [(pod, problem) for pod in asking if (problem := escape_of(pod, vendors))]
    for pod, problem in refused[:_MOST_NAMES]:
        yield _found(
            Bearing.LOST,
            pod.full_name,
            f"it runs on, and is refused when it is made anew: {problem}",
        )
    if len(refused) > _MOST_NAMES:
        more = len(refused) - _MOST_NAMES
        yield _found(Bearing.LOST, "pods", f"{more} more are refused likewise")


def _pods(seen: SeenCluster, vendors: VendorRegistry) -> Iterator[MoveFinding]:
    unread: list[tuple[Pod, str]] = []
    by_node: Counter[str] = Counter()
    for pod in seen.pods:
        if pod.finished or not pod.spec.node_name:
            continue
        account = account_of(pod, vendors)
        if account is None:
            continue
        if account.problems:
            unread.append((pod, account.problems[0]))
        else:
            by_node[pod.spec.node_name] += 1
    for pod, problem in unread[:_MOST_NAMES]:
        yield _found(Bearing.UNKNOWN, pod.full_name, problem)
    if len(unread) > _MOST_NAMES:
        yield _found(Bearing.UNKNOWN, "pods", f"{len(unread) - _MOST_NAMES} more cannot be read")
    for node, count in sorted(by_node.items()):
        pods = "1 pod" if count == 1 else f"{count} pods"
        yield _found(
            Bearing.KEEPS, node, f"{pods} with devices, which our scheduler charges as HAMi does"
        )


def unsigned(seen: SeenCluster, vendors: VendorRegistry) -> tuple[str, ...]:
    """The pods with devices whose allocation is not of a scheduler of ours."""
    return tuple(
        pod.full_name
        for pod in seen.pods
        if pod.spec.node_name
        and not pod.finished
        and keys.ALLOCATION_SIGNATURE not in pod.annotations
        and who_asks(pod, vendors)
    )


def hami_nodes(seen: SeenCluster, plugin: HamiWorkload | None) -> tuple[str, ...]:
    """The nodes that HAMi's DaemonSet selects."""
    wanted = (plugin.spec.template.spec.node_selector or {}) if plugin else {}
    if plugin is None:
        return ()
    return tuple(
        sorted(
            node.name
            for node in seen.nodes
            if all(node.labels.get(name) == text for name, text in wanted.items())
        )
    )


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_MOST_NAMES])
    return f"{shown} and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else shown


def _found(bearing: Bearing, about: str, text: str) -> MoveFinding:
    return MoveFinding(bearing=bearing, about=about, text=text)
