"""``mock.tag``: a grant's extra value, from a pod's annotation to the grant and back.

The author of a pod writes ``mock.hami.io/tag``; every grant of the pod carries the text, and the
scheduler's decision records it in ``mock.hami.io/tags``, because the core's device lists cannot.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from hami.domain.allocations import ContainerAllocation, Corrupt, PodAllocation
from hami.domain.devices import Grant
from hami.domain.extra import ExtraKey
from hami.domain.kubernetes.objects import Pod
from hami.domain.units import DeviceId, VendorKey

TAG = "mock.hami.io/tag"
TAGS = "mock.hami.io/tags"


class Tag(msgspec.Struct, frozen=True):
    """A text without meaning, carried from a pod to its grants."""

    text: str


TAG_KEY = ExtraKey("mock.tag", Tag)


class _Entry(msgspec.Struct, frozen=True):
    """``container`` and ``device`` are positions, init containers first."""

    container: int
    device: int
    id: DeviceId
    tag: Tag


def tagged(grant: Grant, pod: Pod) -> Grant:
    """The grant with the pod's tag, if it has one."""
    text = pod.annotations.get(TAG)
    return replace(grant, extra=grant.extra.with_(TAG_KEY, Tag(text))) if text else grant


def encode_tags(vendor: VendorKey, allocation: PodAllocation) -> Mapping[str, str]:
    """``[]`` too is written: it replaces whatever the pod's author had put there."""
    entries = [
        _Entry(number, position, grant.device_id, tag)
        for number, container in enumerate(allocation.containers)
        for position, grant in enumerate(_of(vendor, container))
        if (tag := grant.extra.get(TAG_KEY)) is not None
    ]
    return {TAGS: msgspec.json.encode(entries).decode()}


def restore_tags(vendor: VendorKey, pod: Pod, allocation: PodAllocation) -> PodAllocation | Corrupt:
    """The allocation with the tags of the pod's annotation on this vendor's grants."""
    text = pod.annotations.get(TAGS)
    if text is None:
        return allocation
    places = {
        (number, position, grant.device_id)
        for number, container in enumerate(allocation.containers)
        for position, grant in enumerate(_of(vendor, container))
    }
    ids = tuple(sorted({device_id for _, _, device_id in places}))
    try:
        entries = msgspec.json.decode(text, type=list[_Entry])
    except msgspec.DecodeError as error:
        return Corrupt(ids, f"annotation {TAGS}: {error}")
    tags = {(entry.container, entry.device, entry.id): entry.tag for entry in entries}
    if len(tags) < len(entries) or tags.keys() - places:
        return Corrupt(ids, f"annotation {TAGS} tags a grant twice, or one that there is not")

    def restored(number: int, container: ContainerAllocation) -> ContainerAllocation:
        grants = list(container.grants)
        mine = [index for index, grant in enumerate(grants) if grant.vendor == vendor]
        for position, index in enumerate(mine):
            grant = grants[index]
            tag = tags.get((number, position, grant.device_id))
            if tag is not None:
                grants[index] = replace(grant, extra=grant.extra.with_(TAG_KEY, tag))
        return replace(container, grants=tuple(grants))

    containers = tuple(restored(n, container) for n, container in enumerate(allocation.containers))
    return replace(allocation, containers=containers)


def _of(vendor: VendorKey, container: ContainerAllocation) -> list[Grant]:
    return [grant for grant in container.grants if grant.vendor == vendor]
