"""Slices of HAMi's own library beside ours: shown at each tick, answered every five seconds.

A cluster in migration has both on one node. What is active in one of them is in the other's way.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from hami.domain.units import DeviceId, PodUid, VendorKey
from hami.monitor.compat.feedback import PERIOD_SECONDS, feedback
from hami.monitor.compat.region import Region
from hami.monitor.compat.region_files import RegionFolder, RegionPlace
from hami.monitor.compat.region_slices import kernel_words, slice_of
from hami.monitor.table import DeviceFigures, SliceFigures
from hami.slices.files import MalformedFile

VENDOR = VendorKey("NVIDIA")
"""Whose devices HAMi's library knows."""

MOST_NUMBERS = 512
"""Of a region that is read at every tick. One with more is read when it is answered: a container
can write 16384 of them, some 10 ms of work."""

PodNames = Callable[[PodUid], tuple[str, str] | None]
"""Namespace and name of a pod of this node; None while they are not known."""


class ForeignSlices:
    """Blocks; one caller at a time. ``on_problem`` hears of each unreadable region once.

    ``pods`` are those that HAMi's device plugin gave devices, by the last look.
    """

    def __init__(
        self, folder: RegionFolder, names: PodNames, on_problem: Callable[[str], None]
    ) -> None:
        self._folder = folder
        self._names = names
        self._on_problem = on_problem
        self._told: frozenset[str] = frozenset()
        self._answered_at = 0.0
        self.pods: frozenset[PodUid] = frozenset()
        self._large: dict[RegionPlace, Region] = {}

    def look(
        self, devices: Sequence[DeviceFigures], own: Sequence[SliceFigures], now: float
    ) -> list[SliceFigures]:
        """Rows for the table, beside ``own``; ``now`` in seconds of a clock that is never set."""
        known = {str(one.id): one.id for one in devices if one.vendor == VENDOR}
        problems: dict[str, str] = {}
        answers = now - self._answered_at >= PERIOD_SECONDS
        if answers:
            self._large = {}
        regions = self._read(problems) if known else []
        if regions and answers:
            self._answered_at = now
            self._answer(regions, own, problems)
        # By what they are about: a container can change what its region says at every look.
        for about in sorted(problems.keys() - self._told):
            self._on_problem(f"{about}: {problems[about]}")
        self._told = frozenset(problems)
        return [self._shown(place, region, known) for place, region in regions]

    def _read(self, problems: dict[str, str]) -> list[tuple[RegionPlace, Region]]:
        try:
            places = self._folder.places()
        except OSError as error:
            problems["slices of HAMi's library cannot be read"] = str(error)
            return []
        self.pods = frozenset(place.pod_uid for place in places)
        found = []
        for place in places:
            region = self._large.get(place) or self._folder.read(place)
            if isinstance(region, MalformedFile):
                problems[place.folder] = str(region)
            elif region is not None:
                found.append((place, region))
        self._large = {place: one for place, one in found if one.numbers > MOST_NUMBERS}
        return found

    def _answer(
        self,
        regions: Sequence[tuple[RegionPlace, Region]],
        own: Sequence[SliceFigures],
        problems: dict[str, str],
    ) -> None:
        words = feedback([kernel_words(region) for _, region in regions], _active(own))
        for (place, region), word in zip(regions, words, strict=True):
            if (problem := self._folder.answer(place, region, word)) is not None:
                problems[place.folder] = str(problem)

    def _shown(
        self, place: RegionPlace, region: Region, known: Mapping[str, DeviceId]
    ) -> SliceFigures:
        namespace, pod = self._names(place.pod_uid) or ("", "")
        return slice_of(place, region, vendor=VENDOR, namespace=namespace, pod=pod, known=known)


def _active(own: Sequence[SliceFigures]) -> Mapping[str, Mapping[int, int]]:
    """How many of our slices compute on each device, by priority."""
    counts: defaultdict[str, defaultdict[int, int]] = defaultdict(lambda: defaultdict(int))
    for held in own:
        for device in held.devices:
            if device.utilisation:
                counts[device.device_id][held.priority] += 1
    return counts
