"""What the owners of pods should know, as events on their pods: each thing once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from hami.domain.kubernetes.objects import Pod
from hami.domain.units import PodUid
from hami.monitor.table import NodeTable, SliceFigures, Stranger

BYPASS, COVERED, STRANGER = "SliceBypassed", "SliceCovered", "DeviceWithoutSlice"

Record = Callable[[Pod, str, str], None]
"""Writes a warning about a pod: the pod, the reason, the text."""


class _News(NamedTuple):
    """``what`` tells one thing about a pod from another."""

    pod_uid: PodUid
    reason: str
    what: str
    text: str


class PodWarnings:
    """Remembers what it told for as long as it is so; of a pod that is not known yet it waits."""

    def __init__(self, pod_of: Callable[[PodUid], Pod | None], record: Record) -> None:
        self._pod_of = pod_of
        self._record = record
        self._told: set[tuple[PodUid, str, str]] = set()

    def __call__(self, table: NodeTable) -> None:
        still: set[tuple[PodUid, str, str]] = set()
        for news in _news(table):
            key = news[:3]
            if key not in self._told:
                pod = self._pod_of(news.pod_uid)
                if pod is None:
                    continue
                self._record(pod, news.reason, news.text)
            still.add(key)
        self._told = still


def _news(table: NodeTable) -> Iterator[_News]:
    for held in table.slices:
        if held.covered:
            yield _about(
                held,
                COVERED,
                "sees something else where its limits page should be: a volume or a mount of the "
                "pod's own hides it; take that away",
            )
        if any(process.bypass for process in held.processes):
            yield _about(
                held,
                BYPASS,
                "got a function of the driver that is not limited: its library is older than the "
                "driver; update the node agent",
            )
    for stranger in table.strangers:
        if stranger.pod_uid:
            yield _News(stranger.pod_uid, STRANGER, stranger.device_id, _strange(stranger))


def _about(held: SliceFigures, reason: str, text: str) -> _News:
    return _News(held.pod_uid, reason, held.container, f"container {held.container} {text}")


def _strange(one: Stranger) -> str:
    return (
        f"process {one.pid} of this pod has device {one.device_id} open, of which the pod has no "
        "slice: ask for one, and take away its access to the device's files"
    )
