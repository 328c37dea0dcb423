"""A live resize over HTTP, and the pod annotation that remembers who has asked for one.

``POST /api/v1/pods/NAMESPACE/NAME/resize`` takes a :class:`ResizeBody` and answers with
:class:`ResizedBody` or :class:`NotResizedBody`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from hami.domain.allocations import PodAllocation
from hami.domain.resizes import ContainerResize, ResizeRefusal
from hami.domain.units import MAX_DEVICE_MEMORY, WHOLE_DEVICE, CorePercent, MemoryMiB
from hami.wire.bodies import BadBody, decode_body

REMEMBERED = 8
"""Requests that a pod remembers; a repetition of an older one is carried out again."""

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_ENTRY = re.compile(
    r"(?P<id>[A-Za-z0-9][A-Za-z0-9._-]{0,63}):(?P<generation>\d{1,19}):(?P<digest>[0-9a-f]{16})",
    re.ASCII,
)


def _json_name(name: str) -> str:
    """camelCase; units keep their spelling."""
    first, *rest = name.split("_")
    return first + "".join(map(str.title, rest)).replace("Mib", "MiB")


class ContainerBody(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename=_json_name, omit_defaults=True
):
    """The new amounts of each slice of one container; what is not named stays as it is.

    ``name`` may be left out where only one container has devices. ``memory_mib`` is in MiB,
    ``cores`` and ``cores_limit`` in percent of a device; a limit of 0 is none.
    """

    name: str = ""
    memory_mib: int | None = None
    cores: int | None = None
    cores_limit: int | None = None


class ResizeBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename=_json_name):
    """What is asked. ``request_id`` is the caller's: the same again asks for nothing new."""

    request_id: str
    containers: tuple[ContainerBody, ...]

    @property
    def wanted(self) -> tuple[ContainerResize, ...]:
        return tuple(
            ContainerResize(
                container=one.name,
                memory_mib=None if one.memory_mib is None else MemoryMiB(one.memory_mib),
                cores=None if one.cores is None else CorePercent(one.cores),
                cores_limit=None if one.cores_limit is None else CorePercent(one.cores_limit),
            )
            for one in self.containers
        )

    @property
    def digest(self) -> str:
        """Of everything but the id: the same id with something else is another request."""
        text = msgspec.json.encode(self.containers, order="sorted")
        return hashlib.sha256(text).hexdigest()[:16]


def read_resize(body: bytes) -> ResizeBody | BadBody:
    """The body, if what it says can be."""
    read = decode_body(body, ResizeBody)
    if isinstance(read, BadBody):
        return read
    problem = "".join(_problems(read))
    return BadBody(expected="ResizeBody", problem=problem) if problem else read


def _problems(body: ResizeBody) -> Iterable[str]:
    """The first thing that is wrong."""
    if not _ID.fullmatch(body.request_id):
        yield f"requestId {body.request_id[:64]!r} is not 1 to 64 letters, digits, . _ or -"
        return
    names = [one.name for one in body.containers]
    if not names or len(set(names)) < len(names) or ("" in names and len(names) > 1):
        yield "containers names no container, or one twice"
        return
    for one in body.containers:
        if one.memory_mib is one.cores is one.cores_limit is None:
            yield f"container {one.name or 'without a name'}: no memoryMiB, cores or coresLimit"
            return
        if one.memory_mib is not None and not 0 < one.memory_mib <= MAX_DEVICE_MEMORY:
            yield f"memoryMiB {one.memory_mib} is not from 1 to {MAX_DEVICE_MEMORY}"
            return
        for name, percent in (("cores", one.cores), ("coresLimit", one.cores_limit)):
            if percent is not None and not 0 <= percent <= WHOLE_DEVICE:
                yield f"{name} {percent} is not from 0 to {WHOLE_DEVICE}"
                return


class GrantBody(msgspec.Struct, frozen=True, rename=_json_name):
    """One slice."""

    vendor: str
    device: str
    memory_mib: int
    cores: int


class HolderBody(msgspec.Struct, frozen=True, rename=_json_name):
    """A container with its slices; ``cores_limit`` is 0 without one."""

    name: str
    grants: tuple[GrantBody, ...]
    cores_limit: int = 0


class ResizedBody(msgspec.Struct, frozen=True, rename=_json_name):
    """What is in force now: all containers with slices."""

    pod: str
    node: str
    request_id: str
    generation: int
    containers: tuple[HolderBody, ...]


class RefusalBody(msgspec.Struct, frozen=True, rename=_json_name):
    """One thing that stands in the way; see :class:`hami.domain.resizes.ResizeRefusal`."""

    reason: str
    message: str
    container: str = ""
    device: str = ""
    resource: str = ""
    asked: int | None = None
    free: int | None = None


class NotResizedBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename=_json_name):
    """Why nothing was done, or (``Unknown``) why nobody can tell yet.

    Other servers' errors have a reason and a message too, but never these fields alone.
    """

    reason: str
    message: str
    refusals: tuple[RefusalBody, ...] = ()


def holders(allocation: PodAllocation) -> tuple[HolderBody, ...]:
    """Every container that has slices."""
    return tuple(
        HolderBody(
            name=container.name,
            grants=tuple(
                GrantBody(
                    vendor=grant.vendor,
                    device=grant.device_id,
                    memory_mib=grant.memory_mib,
                    cores=grant.cores,
                )
                for grant in container.grants
            ),
            cores_limit=container.cores_limit,
        )
        for container in allocation.containers
        if container.grants
    )


def refusal_body(refusal: ResizeRefusal) -> RefusalBody:
    return RefusalBody(
        reason=refusal.reason.word,
        message=refusal.text,
        container=refusal.container,
        device=refusal.device or "",
        resource=refusal.resource,
        asked=refusal.asked,
        free=refusal.free,
    )


# Whom a pod remembers.


@dataclass(frozen=True, slots=True)
class Remembered:
    """A request that became a generation of the pod's allocation."""

    request_id: str
    generation: int
    digest: str


def read_remembered(text: str) -> tuple[Remembered, ...]:
    """Oldest first; what cannot be read is left out."""
    found = (_ENTRY.fullmatch(part) for part in text.split(","))
    return tuple(Remembered(m["id"], int(m["generation"]), m["digest"]) for m in found if m)


def remember(known: Sequence[Remembered], new: Remembered) -> str:
    """The annotation with one more, and without the oldest of too many."""
    kept = [*known, new][-REMEMBERED:]
    return ",".join(f"{one.request_id}:{one.generation}:{one.digest}" for one in kept)
