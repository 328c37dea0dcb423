"""One vendor's devices as columns: a vectorised pass says which nodes may serve a request.

Rows of one node are contiguous (a segment), and numpy reduces each segment to one number. The pass
may keep a node that the exact fit refuses, and never drops one that the exact fit accepts. It looks
at one request alone, against the usage before the pod. A column refuses only where the vendor's
rules for the device's mode allow it to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from hami.domain import reasons
from hami.domain.devices import Device, DeviceState, Usage
from hami.domain.profile import Column, ModeRules
from hami.domain.reasons import Reason, Rejected
from hami.domain.requests import DeviceRequest
from hami.domain.units import WHOLE_DEVICE
from hami.policy.fit.selection import Selection

Mask = NDArray[np.bool_]
Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One request as the vectorised pass sees it.

    ``left_*`` is what quota still allows this pod; None: no limit.
    """

    request: DeviceRequest
    selection: Selection
    mutex: bool = False
    left_count: int | None = None
    left_memory: int | None = None
    left_cores: int | None = None


@dataclass(slots=True, eq=False)
class Segment:
    """The rows ``first .. first + count`` of one node; ``node`` is its number, -1 once removed."""

    node: int
    first: int
    count: int


class DeviceTable:
    """The columns. Owned by ``ClusterTable``, which says when a row changes."""

    def __init__(self, rules: Callable[[str], ModeRules], capacity: int = 256) -> None:
        self._rules = rules
        self._size = 0
        self._dead = 0
        self._segments: list[Segment] = []
        self._ids: list[str] = []
        self._models: dict[str, int] = {}
        self._modes: dict[str, int] = {}
        self._columns = _Columns.of(capacity)
        self._view: _Columns | None = None
        self._layout: _Layout | None = None

    def add(self, node: int, states: Sequence[DeviceState], cordoned: frozenset[str]) -> Segment:
        """A new segment for node number ``node``."""
        segment = Segment(node, self._size, len(states))
        self._size += segment.count
        if self._size > self._columns.capacity:
            self._columns = self._columns.grown(self._size * 2)
        self._view = None
        self._segments.append(segment)
        self._ids.extend("" for _ in states)
        self._layout = None
        self.write(segment, states, cordoned)
        return segment

    def write(
        self, segment: Segment, states: Sequence[DeviceState], cordoned: frozenset[str]
    ) -> None:
        """Overwrite a segment's rows with as many states."""
        columns = self._columns
        for row, state in enumerate(states, start=segment.first):
            device = state.device
            mode = self._modes.setdefault(device.mode, len(self._modes))
            if columns.mode[row] != mode or columns.memory[row] != device.memory_mib:
                self._layout = None
            self._ids[row] = device.id
            columns.uuid[row] = hash(device.id)
            columns.healthy[row] = device.healthy
            columns.cordoned[row] = device.id in cordoned
            columns.model[row] = self._models.setdefault(device.model, len(self._models))
            columns.mode[row] = mode
            columns.memory[row] = device.memory_mib
            columns.cores[row] = device.cores
            self.write_usage(row, device, state.usage, known=state.known)

    def write_usage(self, row: int, device: Device, usage: Usage, *, known: bool) -> None:
        columns = self._columns
        columns.free_slots[row] = device.slots - usage.slots
        columns.free_memory[row] = device.memory_mib - usage.memory_mib
        columns.free_cores[row] = device.cores - usage.cores
        columns.in_use[row] = usage.slots > 0
        columns.known[row] = known

    def remove(self, segment: Segment) -> None:
        """Forget a segment; its rows stay, unused."""
        segment.node = -1
        self._dead += segment.count
        self._layout = None

    @property
    def wasteful(self) -> bool:
        """More than half of the rows are dead: time to build the table anew."""
        return self._dead > 1024 and self._dead * 2 > self._size

    def scan(self, ask: Ask) -> Scan:
        """Check every device against one request; the result holds until a row changes."""
        layout = self._current_layout()
        view = self._rows()
        checks = list(self._checks(ask, view, layout))
        refused = np.zeros(self._size, np.bool_)
        for _, failing in checks:
            refused |= failing
        passing = ~refused
        if ask.left_memory is not None and ask.request.count > 1:
            # The cheapest devices together may still exceed what quota leaves.
            charge = layout.charged_memory(ask.request, view)
            too_dear = layout.cheapest(charge, passing, ask.request.count) > ask.left_memory
            may = layout.may_refuse(Column.MEMORY)
            failing = np.repeat(too_dear, layout.lengths) & passing
            failing = failing if may is None else failing & may
            checks.append((reasons.QUOTA, failing))
            passing &= ~failing
        counts = layout.per_segment(passing)
        slices = counts
        if layout.several is not None:
            slices = counts + layout.per_segment(passing & layout.several) * (ask.request.count - 1)
        return Scan(
            request=ask.request,
            layout=layout,
            checks=checks,
            passing=counts,
            enough=(slices >= ask.request.count) & (layout.nodes >= 0),
            several=self._several_admitted(ask, view, layout),
        )

    def _several_admitted(self, ask: Ask, view: _Columns, layout: _Layout) -> Mask | None:
        """Segments with a device that may give several slices and whose mode the pod admits."""
        if layout.several is None:
            return None
        admitted = np.array([ask.selection.admits_mode(mode) for mode in self._modes], np.bool_)
        return layout.per_segment(layout.several & admitted[view.mode]) > 0

    def _checks(self, ask: Ask, view: _Columns, layout: _Layout) -> Iterable[tuple[Reason, Mask]]:
        """Every check that can refuse a device, in the order of the exact loop."""
        request, selection = ask.request, ask.selection

        def where(column: Column, failing: Mask) -> Mask:
            may = layout.may_refuse(column)
            return failing if may is None else failing & may

        # Most clusters have nothing to refuse here, and finding that out costs next to nothing.
        if _some(view.healthy, is_=False):
            yield reasons.NOT_HEALTHY, where(Column.HEALTH, ~view.healthy)
        if _some(view.known, is_=False):
            yield reasons.UNKNOWN_USAGE, where(Column.HEALTH, ~view.known)
        if _some(view.cordoned, is_=True):
            yield reasons.CORDONED, where(Column.CORDON, view.cordoned)
        if selection.use_models or selection.nouse_models or selection.mode is not None:
            models = np.array([not selection.admits_model(m) for m in self._models], np.bool_)
            modes = np.array([not selection.admits_mode(m) for m in self._modes], np.bool_)
            wrong = models[view.model] | modes[view.mode]
            yield reasons.TYPE_MISMATCH, where(Column.SELECTION, wrong)
        if selection.use_uuids or selection.nouse_uuids:
            yield reasons.UUID_MISMATCH, where(Column.SELECTION, self._wrong_uuids(selection))
        yield reasons.NO_SLOT, where(Column.SLOTS, view.free_slots <= 0)
        if ask.mutex or request.exclusive:
            yield reasons.EXCLUSIVE_CONFLICT, where(Column.SLOTS, view.in_use)
        yield from self._quota_checks(ask, view, layout, where)
        memory = layout.charged_memory(request, view)
        yield reasons.NO_MEMORY, where(Column.MEMORY, view.free_memory < memory)
        cores = view.cores if request.exclusive else min(request.cores, WHOLE_DEVICE)
        yield reasons.NO_CORES, where(Column.CORES, view.free_cores < cores)
        if request.exclusive or request.cores >= WHOLE_DEVICE:
            taken = (view.cores == WHOLE_DEVICE) & view.in_use
            yield reasons.EXCLUSIVE_CONFLICT, where(Column.CORES, taken)
        if not request.exclusive and not request.cores:
            spent = (view.free_cores == 0) & (view.cores != 0)
            yield reasons.CORES_EXHAUSTED, where(Column.CORES, spent)

    def _wrong_uuids(self, selection: Selection) -> Mask:
        """Rows whose id the pod does not admit; looks only at ids whose hash the pod names."""
        named = selection.nouse_uuids.union(*selection.use_uuids)
        hashes = np.fromiter((hash(uuid) for uuid in named), np.int64, len(named))
        wrong = np.full(self._size, bool(selection.use_uuids))
        for row in np.flatnonzero(np.isin(self._columns.uuid[: self._size], hashes)).tolist():
            wrong[row] = not selection.admits_uuid(self._ids[row])
        return wrong

    def _quota_checks(
        self,
        ask: Ask,
        view: _Columns,
        layout: _Layout,
        where: Callable[[Column, Mask], Mask],
    ) -> Iterable[tuple[Reason, Mask]]:
        request = ask.request
        if ask.left_count is not None and ask.left_count < request.count:
            yield reasons.QUOTA, np.ones(self._size, np.bool_)
        if ask.left_memory is not None:
            dear = layout.charged_memory(request, view) > ask.left_memory
            yield reasons.QUOTA, where(Column.MEMORY, np.broadcast_to(dear, self._size))
        if ask.left_cores is not None:
            cores: Numbers | int = view.cores
            if not request.exclusive:
                cores = min(request.cores, WHOLE_DEVICE)
            dear = np.asarray(cores) * request.count > ask.left_cores
            yield reasons.QUOTA, where(Column.CORES, np.broadcast_to(dear, self._size))

    def _rows(self) -> _Columns:
        """The columns as far as there are rows; they show every change of a row."""
        if self._view is None:
            self._view = self._columns.view(self._size)
        return self._view

    def _current_layout(self) -> _Layout:
        if self._layout is None:
            view = self._rows()
            rules = [self._rules(mode) for mode in self._modes]
            segments = self._segments
            self._layout = _Layout(
                starts=np.array([s.first for s in segments], np.int64),
                nodes=np.array([s.node for s in segments], np.int64),
                lengths=np.array([s.count for s in segments], np.int64),
                rules=rules,
                mode=view.mode.copy(),
            )
        return self._layout


@dataclass(slots=True, eq=False)
class _Columns:
    """One array per attribute, a row per device."""

    healthy: Mask
    known: Mask
    cordoned: Mask
    in_use: Mask
    uuid: Numbers  # hashes
    model: Numbers
    mode: Numbers
    memory: Numbers
    cores: Numbers
    free_slots: Numbers
    free_memory: Numbers
    free_cores: Numbers

    @classmethod
    def of(cls, capacity: int) -> _Columns:
        def flags() -> Mask:
            return np.zeros(capacity, np.bool_)

        def numbers() -> Numbers:
            return np.zeros(capacity, np.int64)

        return cls(
            flags(), flags(), flags(), flags(),
            numbers(), numbers(), numbers(), numbers(), numbers(), numbers(), numbers(), numbers(),
        )  # fmt: skip

    @property
    def capacity(self) -> int:
        return len(self.healthy)

    def view(self, size: int) -> _Columns:
        return _Columns(**{name: getattr(self, name)[:size] for name in self.__slots__})

    def grown(self, capacity: int) -> _Columns:
        larger = _Columns.of(capacity)
        for name in self.__slots__:
            old = getattr(self, name)
            getattr(larger, name)[: len(old)] = old
        return larger


def _some(mask: Mask, *, is_: bool) -> bool:
    """Some of it is so; to search its bytes takes a fifth of what numpy's own functions take."""
    return bytes([is_]) in mask.tobytes()


_ONES = MappingProxyType({size: int("01" * size, 16) for size in (1, 2, 4, 8)})
"""For each size of an integer in bytes: the integer whose every byte is 1."""


@dataclass(slots=True, eq=False)
class _Layout:
    """What depends on which rows exist and not on their usage; kept between scans."""

    starts: Numbers
    nodes: Numbers
    lengths: Numbers
    rules: Sequence[ModeRules]
    mode: Numbers
    several: Mask | None = field(init=False)
    equal: int = field(init=False)
    """The number of rows of every segment; 0 where segments differ in size."""
    _may: dict[Column, Mask | None] = field(init=False)
    _percent: dict[int, Numbers] = field(default_factory=dict)

    def __post_init__(self) -> None:
        longest = int(self.lengths.max(initial=0))
        self.equal = longest if (self.lengths == longest).all() else 0

        def rows(flags: list[bool], *, none_if: bool) -> Mask | None:
            if all(flag is none_if for flag in flags):
                return None
            return np.array(flags, np.bool_)[self.mode]

        self.several = rows([r.several_slices_per_device for r in self.rules], none_if=False)
        self._may = {
            column: rows([column in (r.prefilter or ()) for r in self.rules], none_if=True)
            for column in Column
        }

    def may_refuse(self, column: Column) -> Mask | None:
        """The rows that this column may refuse; None means all."""
        return self._may[column]

    def charged_memory(self, request: DeviceRequest, view: _Columns) -> Numbers | int:
        """MiB that a slice takes; one number per row where it depends on the device."""
        if request.exclusive:
            return view.memory
        if request.memory_mib is not None:
            return request.memory_mib
        percent = 100 if request.memory_percent is None else request.memory_percent
        if percent == 100:
            return view.memory
        if percent not in self._percent:
            self._percent[percent] = view.memory * percent // 100
        return self._percent[percent]

    def per_segment(self, rows: Mask) -> Numbers:
        """How many rows of each segment are set."""
        if not len(self.starts):
            return np.zeros(0, np.int64)
        if self.equal in _ONES:
            # Each segment is one integer of that many bytes; a product adds them up in its top one.
            whole = rows.view(f"u{self.equal}")
            sums: Numbers = (whole * whole.dtype.type(_ONES[self.equal])) >> (8 * (self.equal - 1))
            return sums.astype(np.int64)
        return np.add.reduceat(rows.view(np.uint8), self.starts, dtype=np.int64)

    def cheapest(self, charge: Numbers | int, passing: Mask, count: int) -> Numbers:
        """The sum of each segment's ``count`` smallest charges among its passing rows."""
        rows = np.where(passing, charge, np.iinfo(np.int64).max // (count + 1))
        segment = np.repeat(np.arange(len(self.starts)), self.lengths)
        order = np.lexsort((rows, segment))
        place = np.arange(len(rows)) - self.starts[segment]
        return np.add.reduceat(np.where(place < count, rows[order], 0), self.starts)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scan:
    """The outcome of one vectorised pass; ``enough`` and the rest are per segment."""

    request: DeviceRequest
    layout: _Layout
    checks: Sequence[tuple[Reason, Mask]]
    passing: Numbers
    enough: Mask
    several: Mask | None

    @property
    def nodes(self) -> Numbers:
        """The node number of each segment, -1 for a removed one."""
        return self.layout.nodes

    def explain(self) -> tuple[list[Rejected], Numbers]:
        """Why each node with too few passing devices was dropped.

        Returns the distinct answers, and for each segment the index of its answer; -1 for a node
        that was not dropped.
        """
        layout = self.layout
        answer = np.full(len(layout.nodes), -1)
        dropped = np.flatnonzero(~self.enough & (layout.nodes >= 0))
        if not len(dropped):
            return [], answer
        words: list[Reason] = []
        columns: list[Numbers] = []
        remaining = np.ones(len(layout.mode), np.bool_)
        for reason, check in self.checks:
            failing = check & remaining
            if failing.any():
                words.append(reason)
                columns.append(layout.per_segment(failing)[dropped])
                remaining ^= failing
        whole = layout.lengths[dropped] < self.request.count
        if self.several is not None:
            whole &= ~self.several[dropped]
        columns += [self.passing[dropped], layout.lengths[dropped], whole.astype(np.int64)]
        # Nodes are often refused alike: make each answer once.
        rows, place = _distinct_rows(columns)
        answer[dropped] = place
        return [_rejected(words, row) for row in rows.tolist()], answer


_FEW_NUMBERS = 1 << 16
"""Up to this many distinct numbers are counted in an array; sorting them takes longer."""


def _distinct_rows(columns: Sequence[Numbers]) -> tuple[Numbers, Numbers]:
    """The distinct rows of these columns, and for each row the index of the one it equals."""
    # One number a row, in mixed radix: counts are small, so it fits unless there are very many.
    numbers, size = np.zeros_like(columns[0]), 1
    for column in columns:
        radix = int(column.max()) + 1
        numbers, size = numbers * radix + column, size * radix
    rows = np.stack(columns, axis=1)
    if size >= 1 << 63:
        _, first, place = np.unique(rows, axis=0, return_index=True, return_inverse=True)
        return rows[first], place.reshape(-1)
    if size > _FEW_NUMBERS:
        _, first, place = np.unique(numbers, return_index=True, return_inverse=True)
        return rows[first], place
    some = np.full(size, -1)
    some[numbers] = np.arange(len(numbers))  # a row with this number
    distinct = np.flatnonzero(some >= 0)
    places = np.empty(size, np.int64)
    places[distinct] = np.arange(len(distinct))
    return rows[some[distinct]], places[numbers]


_TOO_FEW_DEVICES = Rejected.of(reasons.NODE_TOO_FEW_DEVICES)


def _rejected(words: Sequence[Reason], row: Sequence[int]) -> Rejected:
    *refused, passing, devices, whole = row
    if whole:
        return _TOO_FEW_DEVICES
    counts: dict[Reason, int] = {}
    for word, count in zip(words, refused, strict=True):
        counts[word] = counts.get(word, 0) + count
    counts[reasons.TOO_FEW] = passing
    return Rejected.of(counts, devices)
