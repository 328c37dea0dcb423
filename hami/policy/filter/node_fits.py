"""Exact fits of one pod, node by node: each node at most once, and none that cannot help."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hami.domain import reasons
from hami.domain.allocations import PodAllocation
from hami.domain.reasons import Rejected
from hami.domain.requests import Placement, PodRequest
from hami.domain.units import VendorKey
from hami.policy.fit.exact import fit_pod
from hami.policy.quota import PodGate
from hami.policy.tables.cluster_table import ClusterTable


class _UsedUp:
    """The kinds of device that a quota on their model denies this pod on every node.

    Only an exact fit looks at models, and thousands of nodes have the same few.
    """

    def __init__(self, table: ClusterTable, vendor: VendorKey) -> None:
        self._table = table
        self._vendor = vendor
        self._kinds: set[_DeviceKind] = set()
        self._why: Rejected | None = None

    @classmethod
    def of(cls, table: ClusterTable, request: PodRequest, gate: PodGate | None) -> _UsedUp | None:
        """None where equal devices may be charged differently: there a refusal proves nothing."""
        wanted = request.distinct
        if gate is None or not gate.per_model or len(wanted) != 1:
            return None
        vendor = table.vendors[wanted[0].vendor]
        placed = any(rules.placements for rules in vendor.profile.modes.values())
        if placed or vendor.fits or vendor.chooses:
            return None
        return cls(table, wanted[0].vendor)

    def learn(self, name: str, rejected: Rejected) -> None:
        """Remember the kinds of a node where quota alone refused every device."""
        if rejected.counts == ((reasons.QUOTA, rejected.devices),):
            self._kinds |= self._kinds_on(name)
            self._why = self._why or rejected

    def answer(self, name: str) -> Rejected | None:
        """The refusal of a node that has only such kinds; None for a node that has others."""
        if self._why is None:
            return None
        kinds = self._kinds_on(name)
        if not kinds or not kinds <= self._kinds:
            return None
        devices = sum(d.vendor == self._vendor for d, _ in self._table.inventory(name))
        return replace(self._why, counts=((reasons.QUOTA, devices),), devices=devices)

    def _kinds_on(self, name: str) -> frozenset[_DeviceKind]:
        return frozenset(
            (device.model, device.memory_mib, device.cores, device.mode)
            for device, _ in self._table.inventory(name)
            if device.vendor == self._vendor
        )


_DeviceKind = tuple[str, int, int, str]


class Fits:
    """Exact fits of one pod, each node at most once."""

    def __init__(self, table: ClusterTable, request: PodRequest, gate: PodGate | None) -> None:
        self._table = table
        self._request = request
        self._gate = gate
        self._placed: dict[str, PodAllocation] = {}
        self._used_up = _UsedUp.of(table, request, gate)
        self.refused: dict[str, Rejected] = {}

    def on(self, name: str) -> PodAllocation | Rejected:
        if name in self._placed:
            return self._placed[name]
        if name in self.refused:
            return self.refused[name]
        outcome: PodAllocation | Rejected | None = None
        if self._used_up is not None:
            outcome = self._used_up.answer(name)
        if outcome is None:
            devices = self._table.devices(name)
            outcome = fit_pod(self._request, devices, self._table.vendors, self._gate)
        if isinstance(outcome, Rejected):
            self.refused[name] = outcome
            if self._used_up is not None:
                self._used_up.learn(name, outcome)
        else:
            self._placed[name] = outcome
        return outcome

    def place_all(self, candidates: Sequence[str], kept: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Place the pod on each kept candidate; returns what the vendors add to each one's rank."""
        added = np.zeros(len(candidates))
        for index in np.flatnonzero(kept).tolist():
            name = candidates[index]
            outcome = self.on(name)
            if isinstance(outcome, Rejected):
                added[index] = -np.inf
                continue
            score = self._score(name, outcome)
            if score is None:
                del self._placed[name]
                self.refused[name] = _VENDOR_FAILED
                score = -np.inf
            added[index] = score
        return added

    def _score(self, name: str, allocation: PodAllocation) -> float | None:
        total = 0.0
        before = self._table.devices(name).states
        policy = self._request.policy.node
        for ask, given in zip(self._request.containers, allocation.containers, strict=True):
            for wanted in ask.requests:
                vendor = self._table.vendors[wanted.vendor]
                if not vendor.scores:
                    continue
                grants = tuple(g for g in given.grants if g.vendor == wanted.vendor)
                score = vendor.score(wanted, Placement(grants), before[wanted.vendor], policy)
                if score is None:
                    return None
                total += score
        return total


_VENDOR_FAILED = Rejected.of({reasons.VENDOR_ERROR: 1}, 1)
