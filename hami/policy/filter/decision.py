"""Which node takes a pod: drop nodes in one vectorised pass, rank, fit exactly.

The first node whose exact fit succeeds wins. Nothing here reserves or writes; the caller charges
the placement in the same turn.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hami.domain import reasons
from hami.domain.allocations import PodAllocation
from hami.domain.reasons import Rejected
from hami.domain.requests import DeviceRequest, Placement, PodRequest
from hami.domain.scheduling import NodePolicy
from hami.domain.units import VendorKey
from hami.policy.fit.exact import fit_pod
from hami.policy.fit.selection import Selection
from hami.policy.quota import PodGate, Refusal
from hami.policy.tables.cluster_table import ClusterTable
from hami.policy.tables.device_table import Ask, Scan
from hami.policy.tables.node_names import NameBlock


@dataclass(frozen=True, slots=True)
class Placed:
    """The pod goes to ``allocation.node`` with these grants."""

    allocation: PodAllocation


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Refused:
    """No candidate takes the pod: ``answers[answer[i]]`` says why not ``candidates[i]``.

    Thousands of nodes often have the same answer, so a caller that makes texts makes few.
    """

    candidates: Sequence[str]
    answers: Sequence[Rejected]
    answer: NDArray[np.int64]

    @classmethod
    def everywhere(cls, candidates: Sequence[str], why: Rejected) -> Refused:
        """Every candidate refuses for the same reason."""
        return cls(
            candidates=candidates, answers=(why,), answer=np.zeros(len(candidates), np.int64)
        )

    def overruled(self, where: NDArray[np.bool_], why: Rejected) -> Refused:
        """The same refusal, but with the answer ``why`` for these candidates."""
        answer = np.where(where, len(self.answers), self.answer)
        return Refused(candidates=self.candidates, answers=[*self.answers, why], answer=answer)

    def explained(self, which: Collection[int], exact: Rejected) -> Refused:
        """The same refusal; the answers at ``which`` get the quota details of an exact fit."""
        answers = [
            replace(answer, details=exact.details, rules=exact.rules) if index in which else answer
            for index, answer in enumerate(self.answers)
        ]
        return replace(self, answers=answers)

    @property
    def reasons(self) -> Mapping[str, Rejected]:
        """The answer of each candidate by name; a new mapping at every call."""
        answers = map(self.answers.__getitem__, self.answer.tolist())
        return dict(zip(self.candidates, answers, strict=True))


def over_quota(candidates: Sequence[str], why: Iterable[Refusal]) -> Refused:
    """No candidate takes the pod, whatever is free there, because quota does not allow it."""
    why = list(why)
    rejected = Rejected.of(reasons.QUOTA, 1, map(str, why), {refusal.rule for refusal in why})
    return Refused.everywhere(candidates, rejected)


@dataclass(frozen=True, slots=True)
class Prefiltered:
    """What the vectorised pass leaves: for each candidate, whether it may take the pod.

    ``numbers`` are the table's node numbers, -1 for a candidate that the table does not know.
    """

    numbers: NDArray[np.int64]
    kept: NDArray[np.bool_]
    scans: Sequence[Scan]
    capacity: int

    def refused(self, candidates: Sequence[str]) -> Refused:
        """Why each candidate was dropped: the first request that it cannot serve.

        The answers of candidates that were kept mean nothing.
        """
        answers = [_NO_SUCH_DEVICES, _UNREGISTERED]
        by_number = np.zeros(self.capacity + 1, np.int64)
        for scan in reversed(self.scans):
            said, place = scan.explain()
            dropped = place >= 0
            by_number[scan.nodes[dropped]] = place[dropped] + len(answers)
            answers += said
        by_number[-1] = 1
        return Refused(candidates=candidates, answers=answers, answer=by_number[self.numbers])

    def explain(self, candidates: Sequence[str]) -> dict[str, Rejected]:
        """Why each dropped candidate was dropped."""
        why = self.refused(candidates).reasons
        return {n: why[n] for n, kept in zip(candidates, self.kept, strict=True) if not kept}


_UNREGISTERED = Rejected.of(reasons.NODE_UNREGISTERED)
_NO_SUCH_DEVICES = Rejected.of(reasons.NODE_TOO_FEW_DEVICES)
_LOCKED = Rejected.of(reasons.NODE_LOCKED)
_NO_NUMBERS = np.empty(0, np.int64)


def prefilter(
    table: ClusterTable, request: PodRequest, gate: PodGate | None, candidates: Sequence[str]
) -> Prefiltered:
    """One vectorised pass per distinct request of the pod, over all nodes at once."""
    able, scans = _scanned(table, request, gate)
    return _among(table, candidates, able, scans)


def _scanned(
    table: ClusterTable, request: PodRequest, gate: PodGate | None
) -> tuple[NDArray[np.bool_], Sequence[Scan]]:
    """For each node number, whether the node may take the pod; the last entry is of no node."""
    able = np.ones(table.capacity + 1, np.bool_)
    able[-1] = False
    scans: list[Scan] = []
    for device_request in request.distinct:
        scan = table.scan(_ask(table, request, device_request, gate))
        serving = np.zeros_like(able)
        serving[scan.nodes[scan.enough]] = True
        able &= serving
        scans.append(scan)
    return able, scans


def _among(
    table: ClusterTable,
    candidates: Sequence[str],
    able: NDArray[np.bool_],
    scans: Sequence[Scan],
) -> Prefiltered:
    numbers = table.numbers(candidates)
    # Number -1, of a candidate that the table does not know, is the last place.
    return Prefiltered(numbers, able[numbers], scans, table.capacity)


def _ask(
    table: ClusterTable, request: PodRequest, wanted: DeviceRequest, gate: PodGate | None
) -> Ask:
    profile = table.vendors[wanted.vendor].profile
    names = profile.resources
    return Ask(
        request=wanted,
        selection=Selection.of(profile, request.pod),
        mutex=request.policy.device.mutex,
        left_count=gate.left(names.count) if gate else None,
        left_memory=gate.left(names.memory) if gate else None,
        left_cores=gate.left(names.cores) if gate else None,
    )


def decide(
    table: ClusterTable,
    request: PodRequest,
    gate: PodGate | None,
    candidates: Sequence[str],
    *,
    locked: Collection[str] = (),
) -> Placed | Refused:
    """The best candidate that takes the whole pod, or every candidate's reasons.

    ``locked`` are nodes that take no pod for the moment (``NodeLocked``).
    """
    able, scans = _scanned(table, request, gate)
    waiting = _NO_NUMBERS
    if locked:
        numbers = table.numbers(list(locked))
        waiting = numbers[able[numbers]]
        able[waiting] = False
    fits = _Fits(table, request, gate)
    scored = any(table.vendors[key].scores for key in request.vendors)
    if isinstance(candidates, NameBlock) and not scored:
        soon = _best_of_all(table, request.policy.node, able, candidates, fits)
        if soon is not None:
            return Placed(soon)
    first = _among(table, candidates, able, scans)
    rank = _ranked(table, request.policy.node)[first.numbers]
    if scored:
        rank = rank + fits.place_all(candidates, first.kept)
    rank = np.where(first.kept, rank, -np.inf)
    name_ranks = table.name_ranks()
    for index in _best_first(rank, lambda equals: name_ranks[first.numbers[equals]]):
        outcome = fits.on(candidates[index])
        if isinstance(outcome, PodAllocation):
            return Placed(outcome)
    refused = first.refused(candidates)
    if len(waiting):
        refused = refused.overruled(np.isin(first.numbers, waiting), _LOCKED)
    if gate is not None:
        # One exact fit says which quota it was, and what is used, asked and allowed.
        by_quota = [i for i, answer in enumerate(refused.answers) if _by_quota(answer)]
        short = np.flatnonzero(~first.kept & np.isin(refused.answer, by_quota))
        if len(short) and isinstance(exact := fits.on(candidates[int(short[0])]), Rejected):
            refused = refused.explained(by_quota, exact)
    return _with_answers(refused, fits.refused)


def _with_answers(refused: Refused, exact: Mapping[str, Rejected]) -> Refused:
    """``refused`` with the exact fits' answers in place of the vectorised pass's."""
    if not exact:
        return refused
    answers, answer = [*refused.answers, *exact.values()], refused.answer.copy()
    places = {name: place for place, name in enumerate(exact, start=len(refused.answers))}
    for index, name in enumerate(refused.candidates):
        if name in places:
            answer[index] = places[name]
    return Refused(candidates=refused.candidates, answers=answers, answer=answer)


def _by_quota(rejected: Rejected) -> bool:
    return any(reason is reasons.QUOTA for reason, _ in rejected.counts)


_FEW = 8


def _best_of_all(
    table: ClusterTable,
    policy: NodePolicy,
    able: NDArray[np.bool_],
    candidates: NameBlock,
    fits: _Fits,
) -> PodAllocation | None:
    """The best node of the table, if it is a candidate, or else one of the next few.

    kube-scheduler offers most pods most nodes. Then it is enough to find one name among the
    candidates, and the other names need no lookup. None says nothing about the other nodes.
    """
    rank = np.where(able, _ranked(table, policy), -np.inf)
    strangers = 0
    for number in _best_first(rank, table.name_ranks().__getitem__):
        name = table.name_of(number)
        if name in candidates:
            outcome = fits.on(name)
            if isinstance(outcome, PodAllocation):
                return outcome
        else:
            strangers += 1
            if strangers == _FEW:
                break
    return None


def _ranked(table: ClusterTable, policy: NodePolicy) -> NDArray[np.float64]:
    """The rank of each node by its number; a higher rank is better."""
    scores = table.scores()[: table.capacity + 1]
    return -scores if policy is NodePolicy.SPREAD else scores


def _best_first(
    rank: NDArray[np.float64], order: Callable[[NDArray[np.int64]], NDArray[np.int64]]
) -> Iterator[int]:
    """Indexes from the highest rank down; ``order`` decides among equals. Finds the next on demand.

    ``rank`` is overwritten.
    """
    while len(rank) and (best := rank.max()) > -np.inf:
        equals = np.flatnonzero(rank == best)
        index = int(equals[order(equals).argmin()])
        yield index
        rank[index] = -np.inf


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


class _Fits:
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
