"""What is in use of devices and quotas, counted anew from annotation texts at every change.

Independent of the code that it checks: nothing of ``hami.policy`` or ``hami.wire`` is used.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...kubernetes.recount import (
    ALLOCATED,
    NODE,
    Amount,
    Key,
    asks,
    granted,
    handed_out,
    hardware,
    usage,
)

Json = Mapping[str, Any]
LIMITS = ("limits.nvidia.com/gpu", "limits.nvidia.com/gpumem", "limits.nvidia.com/gpucores")
_SUFFIXES = {"": 1, "k": 1000, "M": 1000**2}


def holds(pod: Json) -> bool:
    """Whether the pod is bound, has not ended, and has devices."""
    ended = pod.get("status", {}).get("phase") in {"Succeeded", "Failed"}
    return bool(pod["spec"].get("nodeName")) and not ended and asks(pod)


def allocated(pod: Json) -> str:
    annotations = pod["metadata"].get("annotations", {})
    assert annotations.get(NODE) == pod["spec"]["nodeName"], f"{about(pod)}: {annotations}"
    return annotations[ALLOCATED]


def about(pod: Json) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def on_devices(pod: Json) -> dict[Key, Amount]:
    """What one pod uses, by node and device."""
    if not holds(pod):
        return {}
    node = pod["spec"]["nodeName"]
    return {(node, device): held for device, held in usage(pod, allocated(pod)).items()}


def against_quota(pod: Json) -> Amount:
    """What one pod counts against quota: the worst moment in each dimension, over all devices."""
    if not holds(pod):
        return Amount()
    inits = pod["spec"].get("initContainers", ())
    running = peak = Amount()
    for container, slot in handed_out(pod, allocated(pod)):
        held = sum((amount for _, amount in granted(slot)), Amount())
        once = container in inits and container.get("restartPolicy") != "Always"
        if not once:
            running += held
        elif not _ended(pod, container["name"]):
            peak = peak.peak(running + held)
    return running.peak(peak)


def _ended(pod: Json, init: str) -> bool:
    """Whether all plain init containers have ended with exit 0; only then is anything free again."""
    once = {
        c["name"]
        for c in pod["spec"].get("initContainers", ())
        if c.get("restartPolicy") != "Always"
    }
    statuses = pod.get("status", {}).get("initContainerStatuses", ())
    good = {
        s["name"] for s in statuses if s.get("state", {}).get("terminated", {}).get("exitCode") == 0
    }
    return init in once and once <= good


def used_of_devices(pods: Iterable[Json], nodes: Iterable[Json]) -> dict[Key, Amount]:
    """The usage of every device."""
    used = dict.fromkeys(hardware(nodes), Amount())
    for pod in pods:
        for key, amount in on_devices(pod).items():
            if key in used:
                used[key] += amount
    return used


def used_in(namespace: str, pods: Iterable[Json]) -> Amount:
    return sum(
        (against_quota(p) for p in pods if p["metadata"]["namespace"] == namespace), Amount()
    )


def limits(quota: Json) -> dict[str, int]:
    """The limits in ``spec.hard``; MiB for memory."""
    hard = quota["spec"].get("hard", {})
    return {key: number(hard[key]) for key in LIMITS if key in hard}


def number(text: str) -> int:
    read = re.fullmatch(r"(\d+)([kM]?)", text)
    assert read, text
    return int(read[1]) * _SUFFIXES[read[2]]


def beyond(used: Amount, limit: Mapping[str, int]) -> list[str]:
    amounts = zip(LIMITS, (used.slots, used.memory, used.cores), strict=True)
    return [
        f"{key}: {amount} > {limit[key]}"
        for key, amount in amounts
        if amount > limit.get(key, amount)
    ]


@dataclass
class _Span:
    """A limit that the service may have acted on from ``since`` to ``until``."""

    limit: Mapping[str, int] | None
    since: int
    until: int | None = None


@dataclass
class Ceilings:
    """The limits of a quota, and the span of time in which the service may have acted on each.

    Moments are numbers that grow. A lowered or new limit counts from the moment at which the
    service is known to have seen it: :meth:`known`.
    """

    spans: dict[tuple[str, str], list[_Span]] = field(default_factory=dict)

    def set(self, namespace: str, name: str, limit: Mapping[str, int] | None, now: int) -> None:
        """Set a limit; None: the quota does not exist any more."""
        history = self.spans.setdefault((namespace, name), [_Span(None, 0)])
        history.append(_Span(limit, now))

    def known(self, namespace: str, name: str, limit: Mapping[str, int] | None, now: int) -> None:
        """The service acts on this limit; earlier ones are over."""
        history = self.spans.get((namespace, name), [])
        if history and history[-1].limit == limit:
            for span in history[:-1]:
                span.until = now if span.until is None else span.until

    def exceeded(self, namespace: str, used: Amount, since: int) -> Iterator[str]:
        """Why no limit can have allowed this at or after ``since``; one reason per quota."""
        for (where, name), history in self.spans.items():
            if where != namespace:
                continue
            allowed = [span.limit for span in history if span.until is None or span.until >= since]
            problems = [[] if limit is None else beyond(used, limit) for limit in allowed]
            if all(problems):
                yield f"quota {where}/{name}: {problems[-1]}; since {since}: {history[-6:]}"


def _asked_for(pod: Json) -> str:
    """The resizes that the pod remembers."""
    return str(pod["metadata"].get("annotations", {}).get("hami.io/resizes", ""))


class Books:
    """Follows an API server change by change; ``violations`` are what should never have been."""

    def __init__(self) -> None:
        self.violations: list[str] = []
        self.following = True
        """Off where a test itself breaks what should hold."""
        self.ceilings = Ceilings()
        self.moment = 1
        self.decided: dict[str, int] = {}
        """Pod uid -> no promise to it is older than this moment."""
        self.bound: Counter[str] = Counter()
        """Pod uid -> how often it was bound."""
        self.hardware: dict[Key, Amount] = {}
        self.pods: dict[str, Json] = {}
        self._held: dict[str, tuple[dict[Key, Amount], Amount]] = {}

    def tick(self) -> int:
        self.moment += 1
        return self.moment

    def asked(self, pod: Json) -> None:
        """A filter is about to be sent; its promise may be older, if an earlier filter made one."""
        self.decided.setdefault(pod["metadata"]["uid"], self.tick())

    def refused(self, pod: Json) -> None:
        """The filter refused the pod, so nothing is promised to it."""
        self.decided.pop(pod["metadata"]["uid"], None)

    def changed(self, plural: str, type: str, new: Json, old: Json | None) -> None:
        gone = type == "DELETED"
        match plural:
            case _ if not self.following:
                return
            case "nodes" if not gone:
                # Hardware does not shrink: a device that is not there for a while comes back.
                self.hardware |= hardware([new])
            case "resourcequotas":
                limit = None if gone else limits(new)
                if gone or old is None or limits(old) != limit:
                    about_it = new["metadata"]
                    self.ceilings.set(about_it["namespace"], about_it["name"], limit, self.tick())
            case "pods":
                self._pod_changed(new, old, gone=gone)

    def _pod_changed(self, new: Json, old: Json | None, *, gone: bool) -> None:
        uid = new["metadata"]["uid"]
        if gone:
            self.pods.pop(uid, None)
            self._held.pop(uid, None)
            return
        self.pods[uid] = new
        self._held[uid] = (on_devices(new), against_quota(new))
        is_bound = bool(new["spec"].get("nodeName"))
        if is_bound and not (old and old["spec"].get("nodeName")):
            self.bound[uid] += 1
            self._check(new)
        elif old and _asked_for(new) != _asked_for(old):
            self._check(new)

    def _check(self, pod: Json) -> None:
        """Check a pod that was bound just now."""
        uid = pod["metadata"]["uid"]
        for key in self._held[uid][0]:
            used = sum((held[key] for held, _ in self._held.values() if key in held), Amount())
            if key not in self.hardware or used.exceeds(self.hardware[key]):
                self.violations.append(f"{about(pod)}: {key} {used} of {self.hardware.get(key)}")
        namespace = pod["metadata"]["namespace"]
        if not any(where == namespace for where, _ in self.ceilings.spans):
            return
        counted = (
            amount
            for other, (_, amount) in self._held.items()
            if self.pods[other]["metadata"]["namespace"] == namespace
        )
        used = sum(counted, Amount())
        since = self.decided.get(uid, 0)
        self.violations += [
            f"{about(pod)}: {p}" for p in self.ceilings.exceeded(namespace, used, since)
        ]
