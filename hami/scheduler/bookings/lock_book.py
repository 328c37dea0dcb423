"""Which nodes take nobody for the moment, because their agent serves one pod at a time.

Known from the nodes as the informer shows them, from the locks that were taken here and are not
shown yet, and from what is promised to pods on their way. No I/O: taking a lock decides
(``hami.scheduler.decide.locks``), this saves asking in vain.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from datetime import datetime, timedelta

from hami.domain.allocations import PodAllocation
from hami.domain.errors import Malformed
from hami.domain.kubernetes.objects import Node, Pod
from hami.domain.profile import VendorProfile
from hami.domain.units import PodUid, VendorKey
from hami.kube.compat.node_lock import PRIVATE_EXPIRY, utc_now
from hami.kube.informer import is_older
from hami.wire import keys
from hami.wire.codecs import NodeLock, decode_node_lock
from hami.wire.node_identity import lock_of

NeedsLock = Callable[[Node, VendorProfile], str]
"""The annotation of the lock that a pod with devices of this vendor needs there; empty: none."""

PodOn = Callable[[str, NodeLock], PodUid | None]
"""The pod with devices on this node that this lock names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A lock on a node: ``value`` as it stands there, seen first at ``since`` (monotonic)."""

    value: str
    lock: NodeLock | Malformed
    since: float


@dataclass(frozen=True, slots=True)
class _Ours:
    pod: PodUid
    version: str


class LockBook:
    """Fed with nodes; asked by every filter, so it knows at once where nobody needs a lock."""

    def __init__(
        self,
        needs: NeedsLock,
        expiry: Callable[[], float],
        pod_on: PodOn,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        """``expiry`` in seconds: when another's lock is nobody's any more."""
        self._needs_lock = needs
        self._expiry = expiry
        self._pod_on = pod_on
        self._clock = clock
        self._now = now
        self._needs: dict[str, Mapping[VendorKey, str]] = {}
        self._shown: dict[str, dict[str, Shown]] = {}
        self._ours: dict[tuple[str, str], _Ours] = {}

    # What there is.

    def node_seen(self, node: Node, profiles: Iterable[VendorProfile]) -> bool:
        """The node as it is now; whether a lock that was there is not any more."""
        needs = {
            profile.key: annotation
            for profile in profiles
            if profile.node_annotations.register in node.annotations
            and (annotation := self._needs_lock(node, profile))
        }
        before = self._shown.get(node.name, {})
        if not needs:
            self.node_gone(node.name)
            return bool(before)
        self._needs[node.name] = needs
        shown = {
            key: self._show(node.annotations[key], before.get(key))
            for key in set(needs.values())
            if key in node.annotations
        }
        if shown:
            self._shown[node.name] = shown
        else:
            self._shown.pop(node.name, None)
        for key in set(needs.values()):
            ours = self._ours.get((node.name, key))
            if ours and not is_older(node.metadata.resource_version, than=ours.version):
                del self._ours[node.name, key]
        return any(key not in shown for key in before)

    def _show(self, value: str, before: Shown | None) -> Shown:
        if before is not None and before.value == value:
            return before
        return Shown(value=value, lock=decode_node_lock(value), since=self._clock())

    def node_gone(self, name: str) -> None:
        for key in set(self._needs.pop(name, {}).values()):
            self.released(name, key)
        self._shown.pop(name, None)

    def taken(self, node: str, key: str, pod: PodUid, version: str) -> None:
        """By a pod of ours; the informer will show it from this version of the node on."""
        if node in self._needs:
            self._ours[node, key] = _Ours(pod, version)

    def released(self, node: str, key: str) -> None:
        self._ours.pop((node, key), None)

    # What is asked.

    @property
    def needed_anywhere(self) -> bool:
        return bool(self._needs)

    def needed(self, node: str, vendors: Collection[VendorKey]) -> Set[str]:
        """The annotations of the locks that these vendors need there."""
        needs = self._needs.get(node)
        if not needs:
            return frozenset()
        return {needs[vendor] for vendor in vendors if vendor in needs}

    def overdue(self, age: float) -> Iterator[tuple[str, str]]:
        """Node and value of HAMi's locks that have stood there unchanged for ``age`` seconds."""
        oldest = self._clock() - age
        for node, locks in self._shown.items():
            shown = locks.get(keys.NODE_LOCK)
            if shown is not None and shown.since <= oldest:
                yield node, shown.value

    def busy(
        self,
        pod: Pod,
        vendors: Collection[VendorKey],
        promises: Iterable[tuple[PodUid, PodAllocation]],
        siblings: Collection[PodUid] = (),
    ) -> Collection[str]:
        """The nodes that another pod has, or is promised, so that this one had to wait there.

        ``siblings`` are no others.
        """
        own = siblings or (pod.uid,)
        busy = {name for name in self._shown if self._is_held(name, pod, vendors, siblings)}
        busy |= {
            name
            for (name, key), ours in self._ours.items()
            if ours.pod not in own and key in self.needed(name, vendors)
        }
        for uid, allocation in promises:
            if uid in own or allocation.node in busy:
                continue
            theirs = self.needed(allocation.node, [grant.vendor for grant in allocation.grants])
            if not theirs.isdisjoint(self.needed(allocation.node, vendors)):
                busy.add(allocation.node)
        return busy

    def _is_held(
        self, node: str, pod: Pod, vendors: Collection[VendorKey], siblings: Collection[PodUid]
    ) -> bool:
        return any(
            self._is_anothers(node, key, pod, siblings)
            for key in self.needed(node, vendors)
            if key in self._shown[node]
        )

    def _is_anothers(self, node: str, key: str, pod: Pod, siblings: Collection[PodUid]) -> bool:
        """Of a vendor's own lock nobody knows whose it is."""
        lock = self._shown[node][key].lock
        if isinstance(lock, Malformed):
            return True
        if (lock.namespace, lock.pod) == (pod.namespace, pod.name):
            return False
        expiry = self._expiry() if key == keys.NODE_LOCK else PRIVATE_EXPIRY
        if self._now() - lock.at > timedelta(seconds=expiry):
            return False
        return not siblings or self._pod_on(node, lock) not in siblings


def needs_lock(node: Node, profile: VendorProfile, *, silent: bool = False) -> str:
    """``silent``: what the agent said on the node counts no more."""
    match lock_of(node, profile, silent=silent):
        case "mutex":
            return keys.NODE_LOCK
        case "private":
            return profile.node_annotations.lock
        case "none":
            return ""
