"""How much of idle compute each container may have: ``main=80,side=100``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from hami.domain.allocations import ContainerAllocation, ContainerKind
from hami.domain.errors import Malformed, shortened
from hami.domain.kubernetes.objects import Container
from hami.domain.units import WHOLE_DEVICE, CorePercent
from hami.wire import keys

NO_LIMIT: Final = CorePercent(0)

_ENTRY = re.compile(r"(?P<name>[a-z0-9-]{1,63})=(?P<percent>[1-9]\d{0,2})", re.ASCII)


def encode_cores_limits(containers: Iterable[ContainerAllocation]) -> str:
    """In the order of the containers; empty where none has a limit."""
    return ",".join(f"{c.name}={c.cores_limit}" for c in containers if c.cores_limit)


def decode_cores_limits(
    text: str, containers: Sequence[tuple[Container, ContainerKind]]
) -> Mapping[str, CorePercent] | Malformed:
    """The limits by container name; an empty text has none."""
    if not text:
        return {}
    names = {container.name for container, _ in containers}
    limits: dict[str, CorePercent] = {}
    for position, entry in enumerate(text.split(",")):
        match = _ENTRY.fullmatch(entry)
        if match is None or int(match["percent"]) > WHOLE_DEVICE:
            return _malformed(position, entry, "is not <container>=<percent of a device>")
        if match["name"] not in names or match["name"] in limits:
            return _malformed(position, entry, "names no container of the pod, or one twice")
        limits[match["name"]] = CorePercent(int(match["percent"]))
    return limits


def _malformed(position: int, text: str, problem: str) -> Malformed:
    return Malformed(
        annotation=keys.ALLOCATED_CORES_LIMIT,
        position=f"entry {position}",
        text=shortened(text),
        problem=problem,
    )
