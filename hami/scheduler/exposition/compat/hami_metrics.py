"""What the cluster has, what is allocated, what quota is used: HAMi's metrics, as text.

The text is written by hand and in pieces: 40 000 devices make 280 000 lines. A filter may have to
wait for the piece that is being written, and never for all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hami.domain.allocations import PodAllocation
from hami.domain.devices import Device, Usage
from hami.domain.kubernetes.objects import Pod
from hami.domain.profile import VendorProfile
from hami.domain.units import PodUid, VendorKey
from hami.http.build_info import build_info
from hami.http.metrics import header
from hami.policy.usage import quota_charge
from hami.scheduler.bookings.charges import Charge
from hami.scheduler.exposition.compat import hami_families as families
from hami.scheduler.exposition.compat.hami_families import DeviceRow, PodRow
from hami.scheduler.exposition.elastic_metrics import ElasticRows, elastic_lines, unbacked_lines
from hami.wire.mig_entries import mig_entries

PIECE = 1000
"""Lines written before others may run: some 0.3 ms."""

_PAUSE = ""
"""Stands for a piece of work that made no line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaUsage:
    """One ResourceQuota object: limits and usage by resource name; memory in MiB."""

    namespace: str
    name: str
    limits: Mapping[str, int]
    used: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What there is to show; nothing in it changes any more.

    ``charges`` are the bound pods; ``promised`` are pods that are not seen bound yet. A node's
    inventory is the same object as in the last snapshot while nothing about its devices has
    changed.
    """

    nodes: Mapping[str, Sequence[tuple[Device, Usage]]]
    charges: Sequence[Charge]
    promised: Sequence[tuple[Pod, PodAllocation]]
    quotas: Sequence[QuotaUsage]
    profiles: Mapping[VendorKey, VendorProfile]
    elastic: Sequence[ElasticRows] = ()
    unbacked: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _NodeRows:
    inventory: object
    rows: Sequence[DeviceRow]


@dataclass(frozen=True, slots=True)
class _PodRows:
    """The rows of one pod.

    ``charge`` is what they were made of; None for a pod that is not seen bound yet.
    """

    charge: Charge | None
    pod: Pod
    allocation: PodAllocation
    rows: Sequence[PodRow]
    amounts: Mapping[str, int]


class HamiText:
    """Writes snapshots; keeps the rows of everything that did not change since the last one.

    Two threads may write two snapshots at the same time: each replaces the kept rows by its own.
    """

    def __init__(self, *, legacy: bool = False) -> None:
        self._legacy = legacy
        self._nodes: Mapping[str, _NodeRows] = {}
        self._pods: Mapping[PodUid, _PodRows] = {}

    def render(self, snapshot: Snapshot) -> bytes:
        """The whole text at once."""
        return b"".join(self.pieces(snapshot))

    def pieces(self, snapshot: Snapshot) -> Iterator[bytes]:
        """Prometheus' text format, version 0.0.4; an empty piece is a pause."""
        nodes: dict[str, _NodeRows] = {}
        for name, inventory in snapshot.nodes.items():
            nodes[name] = self._node_rows(name, inventory)
            if len(nodes) % 100 == 0:
                yield b""
        self._nodes = nodes
        pods: dict[PodUid, _PodRows] = {}
        for charge in snapshot.charges:
            known = self._pods.get(charge.pod.uid)
            if known is None or known.charge is not charge:
                known = self._pod_rows(charge.pod, charge.account.running, charge, snapshot)
            pods[charge.pod.uid] = known
            if len(pods) % 100 == 0:
                yield b""
        self._pods = dict(pods)
        for pod, allocation in snapshot.promised:
            pods[pod.uid] = self._pod_rows(pod, allocation, None, snapshot)
        yield from self._device_families(nodes)
        yield from self._pod_families(pods)
        yield from _in_pieces(self._mig_lines(snapshot, pods))
        yield from _in_pieces(self._quota_lines(snapshot, pods))
        yield from _in_pieces(elastic_lines(snapshot.elastic))
        yield from _in_pieces(unbacked_lines(snapshot.unbacked))
        yield build_info().encode()

    # Devices.

    def _node_rows(self, node: str, inventory: Sequence[tuple[Device, Usage]]) -> _NodeRows:
        """One row per set of labels, because ids are unique only within a vendor."""
        known = self._nodes.get(node)
        if known is not None and known.inventory is inventory:
            return known
        before = {id(row.device): row for row in known.rows} if known is not None else {}
        found: dict[str, DeviceRow] = {}
        for device, usage in inventory:
            row = before.get(id(device))
            if row is None:
                row = DeviceRow.of(node, device, usage, legacy=self._legacy)
            else:
                row = DeviceRow(row.labels, row.legacy, device, usage)
            found.setdefault(row.labels, row)
        return _NodeRows(inventory, tuple(found.values()))

    def _device_families(self, nodes: Mapping[str, _NodeRows]) -> Iterator[bytes]:
        for family in families.DEVICE_FAMILIES:
            name, value, more = family.name, family.value, family.more
            lines = [header(name, family.help)]
            for node in nodes.values():
                lines += [
                    f"{name}{{{row.labels}{more(row.device)}}} {number}\n"
                    for row in node.rows
                    if (number := value(row.device, row.usage)) is not None
                ]
                if len(lines) >= PIECE:
                    yield _encoded(lines)
                    lines = []
            yield _encoded(lines)
        if self._legacy:
            for family in families.DEVICE_FAMILIES:
                yield from _in_pieces(_legacy_device_lines(family, nodes))

    # Pods.

    def _pod_rows(
        self, pod: Pod, allocation: PodAllocation, charge: Charge | None, snapshot: Snapshot
    ) -> _PodRows:
        rows: dict[str, PodRow] = {}
        for index, container in enumerate(allocation.containers):
            for grant in container.grants:
                place = (pod, allocation.node, index, grant.device_id, grant.usage)
                _add(rows, PodRow.of(*place, legacy=self._legacy))
        amounts = quota_charge(allocation.containers, snapshot.profiles)
        return _PodRows(charge, pod, allocation, tuple(rows.values()), amounts)

    def _pod_families(self, pods: Mapping[PodUid, _PodRows]) -> Iterator[bytes]:
        rows: dict[str, PodRow] = {}
        for number, pod in enumerate(pods.values(), start=1):
            for row in pod.rows:
                _add(rows, row)
            if number % PIECE == 0:
                yield b""
        for family in families.POD_FAMILIES:
            yield from _in_pieces(_pod_lines(family, rows.values()))
            if self._legacy:
                yield from _in_pieces(_legacy_pod_lines(family, rows.values()))

    def _mig_lines(self, snapshot: Snapshot, pods: Mapping[PodUid, _PodRows]) -> Iterator[str]:
        """One line per instance that was made on a device that its pod holds in mode ``mig``."""
        lines: dict[str, None] = {}
        legacy: dict[str, None] = {}
        for holder in pods.values():
            yield _PAUSE
            entries = mig_entries(holder.pod)
            if not entries:
                continue
            node = holder.allocation.node
            held = {grant.device_id for grant in holder.allocation.grants}
            indexes = {
                str(device.id): device.index
                for device, _ in snapshot.nodes.get(node, ())
                if device.mode == "mig" and device.id in held
            }
            for entry in entries:
                if (index := indexes.get(entry.gpu_uuid)) is not None:
                    lines[families.mig_labels(entry, node, index)] = None
                    legacy[families.legacy_mig_labels(entry, node, index)] = None
        yield header(families.MIG, families.MIG_HELP)
        yield from (f"{families.MIG}{{{labels}}} 1\n" for labels in lines)
        if self._legacy:
            yield header(families.LEGACY_MIG, families.MIG_HELP)
            yield from (f"{families.LEGACY_MIG}{{{labels}}} 1\n" for labels in legacy)

    # Quota.

    def _quota_lines(self, snapshot: Snapshot, pods: Mapping[PodUid, _PodRows]) -> Iterator[str]:
        """One line per namespace and resource, as in HAMi.

        Among several objects the one with the least left counts. What no object limits is shown
        too, with the limit 0.
        """
        limited: dict[tuple[str, str], tuple[int, int]] = {}
        for quota in snapshot.quotas:
            for resource, limit in quota.limits.items():
                key, held = (quota.namespace, resource), (quota.used[resource], limit)
                other = limited.get(key)
                if other is None or held[1] - held[0] < other[1] - other[0]:
                    limited[key] = held
        used = {key: used for key, (used, _) in limited.items()}
        for holder in pods.values():
            yield _PAUSE
            for resource, amount in holder.amounts.items():
                key = (holder.pod.namespace, resource)
                if key not in limited:
                    used[key] = used.get(key, 0) + amount
        rows = [(*key, used[key], limited.get(key, (0, 0))[1]) for key in sorted(used)]
        name = families.QUOTA_USED
        yield header(name, families.QUOTA_USED_HELP)
        for namespace, resource, amount, limit in rows:
            labels = families.quota_used_labels(namespace, resource, limit)
            yield f"{name}{{{labels}}} {amount}\n"
        name = families.QUOTA_LIMIT
        yield header(name, families.QUOTA_LIMIT_HELP)
        for (namespace, resource), (_, limit) in sorted(limited.items()):
            yield f"{name}{{{families.quota_labels(namespace, resource)}}} {limit}\n"
        if self._legacy:
            name = families.LEGACY_QUOTA_USED
            yield header(name, families.QUOTA_USED_HELP)
            for namespace, resource, amount, limit in rows:
                labels = families.legacy_quota_labels(namespace, resource, limit)
                yield f"{name}{{{labels}}} {amount}\n"


def _legacy_device_lines(
    family: families.DeviceFamily, nodes: Mapping[str, _NodeRows]
) -> Iterator[str]:
    """Lines with the old names; devices of two vendors with the same labels make one line.

    One of the old names has no model among its labels.
    """
    yield header(family.legacy, family.help)
    for node in nodes.values():
        lines: dict[str, str] = {}
        for row in node.rows:
            number = family.value(row.device, row.usage)
            if number is not None:
                labels = f"{row.legacy}{family.legacy_more(row.device)}"
                lines.setdefault(labels, f"{family.legacy}{{{labels}}} {number}\n")
        yield from lines.values()


def _pod_lines(family: families.PodFamily, rows: Iterable[PodRow]) -> Iterator[str]:
    yield header(family.name, family.help)
    for row in rows:
        yield f"{family.name}{{{row.labels}}} {family.value(row.usage)}\n"


def _legacy_pod_lines(family: families.PodFamily, rows: Iterable[PodRow]) -> Iterator[str]:
    yield header(family.legacy, family.help)
    for row in rows:
        yield f"{family.legacy}{{{row.legacy}}} {family.value(row.usage)}\n"


def _add(rows: dict[str, PodRow], row: PodRow) -> None:
    """Add a row, or add its usage to the row with the same labels.

    Two slices of one device have the same labels, and so have a pod and its successor of the same
    name.
    """
    same = rows.get(row.labels)
    rows[row.labels] = row if same is None else replace(row, usage=same.usage + row.usage)


def _in_pieces(lines: Iterable[str]) -> Iterator[bytes]:
    held: list[str] = []
    for line in lines:
        held.append(line)
        if len(held) >= PIECE:
            yield _encoded(held)
            held = []
    yield _encoded(held)


def _encoded(lines: Sequence[str]) -> bytes:
    # Labels come from annotations: a character that cannot be encoded must not stop a scrape.
    return "".join(lines).encode("utf-8", "replace")
