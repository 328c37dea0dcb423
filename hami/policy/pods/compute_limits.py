"""How much compute a container may have beyond what it asks for, where others leave it idle.

What it asks for is what it is guaranteed and what is booked. The pod's author says the limit, for
every container that asks for compute or for one of them; it costs no quota.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from hami.domain.errors import shortened
from hami.domain.kubernetes.objects import Pod
from hami.domain.requests import ContainerRequest, Invalid
from hami.domain.units import WHOLE_DEVICE, CorePercent
from hami.wire import keys

_OF_ONE = keys.CORES_LIMIT + "."
_PERCENT = re.compile(r"[1-9]\d?|100", re.ASCII)


def with_compute_limits(
    pod: Pod, containers: Sequence[ContainerRequest]
) -> Sequence[ContainerRequest] | Invalid:
    """The containers with their limits, those among them that have one."""
    if not any(key == keys.CORES_LIMIT or key.startswith(_OF_ONE) for key in pod.annotations):
        return containers
    asking = {c.container.name: _guaranteed(c) for c in containers if _guaranteed(c)}
    limits: dict[str, CorePercent] = {}
    # The annotation of all comes before those of one, which begin with it.
    for key, text in sorted(pod.annotations.items()):
        if key == keys.CORES_LIMIT:
            names: Iterable[str] = asking
        elif key.startswith(_OF_ONE):
            names = [key.removeprefix(_OF_ONE)]
        else:
            continue
        if not _PERCENT.fullmatch(text):
            return Invalid(
                f"annotation {key}: {shortened(text)!r} is no whole number from 1 to 100, in "
                "percent of a device"
            )
        if not asking.keys() >= set(names) or not asking:
            return Invalid(
                f"annotation {key}: a limit of compute is for containers that ask for some of it, "
                f"which are {sorted(asking) or 'none here'}"
            )
        limits |= dict.fromkeys(names, CorePercent(int(text)))
    for name, limit in limits.items():
        if limit < asking[name]:
            return Invalid(
                f"container {name}: is guaranteed {asking[name]} % of compute and limited to "
                f"{limit} % (annotation {keys.CORES_LIMIT}): a limit cannot be lower"
            )
    return [
        replace(c, cores_limit=limits[c.container.name]) if c.container.name in limits else c
        for c in containers
    ]


def _guaranteed(container: ContainerRequest) -> CorePercent:
    """Of each device; 0 for a container that asks for no share of one."""
    return CorePercent(max((min(r.cores, WHOLE_DEVICE) for r in container.requests), default=0))
