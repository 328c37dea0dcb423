"""One figure per process out of NVML's samples. Pure; times in Unix microseconds."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise

from hami_nvidia.nvml.interface import UtilisationSample


def means(samples: Sequence[UtilisationSample], since_us: int) -> Mapping[int, float]:
    """Percent of the time from ``since_us`` to the newest sample that each process had, by pid.

    NVML gives one sample per process, its mean up to that sample's time
    (https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html). A driver that gives
    more gives one for each period in which the process ran: then a sample counts for the time since
    the one before it, whoever's that was.
    """
    if not samples:
        return {}
    times = sorted({since_us, *(sample.at_us for sample in samples)})
    span = times[-1] - since_us
    if span <= 0:
        return {}
    if max(Counter(sample.pid for sample in samples).values()) == 1:
        lengths = {time: time - since_us for time in times}
    else:
        lengths = {time: time - before for before, time in pairwise(times)}
    found: defaultdict[int, float] = defaultdict(float)
    for sample in samples:
        found[sample.pid] += sample.percent * lengths[sample.at_us] / span
    return {pid: min(100.0, percent) for pid, percent in found.items()}
