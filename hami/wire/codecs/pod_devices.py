"""A pod's devices of one vendor: ``id,type,mem,cores:`` per device, ``;`` after each container.

Containers stand in spec order, init containers first. A container without devices is a bare ``;``;
HAMi's scheduler leaves its slot out (:func:`containers_of`). HAMi's plugins consume
``...-to-allocate`` in this form; schedulers and monitors account by ``...-allocated``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial

from hami.domain.devices import Grant
from hami.domain.errors import Malformed
from hami.domain.units import CorePercent, DeviceId, MemoryMiB, VendorKey
from hami.wire.codecs.fields import NOT_INT32, fault_in_field, go_int32, id_problem, is_int32

Slots = tuple[tuple[Grant, ...], ...]

_USUAL = re.compile(r"([^,:;]+),[^,:;]*,([0-9]{1,9}),([0-9]{1,9})")
"""A device as it is nearly always written; any other is read field by field, to name the fault."""


def decode_pod_devices(text: str, *, annotation: str, vendor: VendorKey) -> Slots | Malformed:
    """The grants of each container slot, or the first fault.

    A text that ends in ``;`` gives one more, empty slot than it has containers. HAMi's plugins add
    another each time they take a device off the list: ignore trailing empty slots. ``annotation``
    is the key for messages, ``vendor`` becomes every grant's vendor; the type in the text (some
    vendors write the model) is not kept. Every grant has ``slots=1``.
    """
    slots, problem = read_pod_devices(text, annotation=annotation, vendor=vendor)
    return slots if problem is None else problem


def read_pod_devices(
    text: str, *, annotation: str, vendor: VendorKey
) -> tuple[Slots, Malformed | None]:
    """Whatever can be read, and the first fault. The readable part stays charged beside a fault."""
    slots: list[tuple[Grant, ...]] = []
    problem: Malformed | None = None
    for number, container in enumerate(text.split(";")):
        grants: list[Grant] = []
        for piece in container.split(":"):
            if "," not in piece:
                continue
            if usual := _USUAL.fullmatch(piece):
                id, memory, cores = usual.groups()
                grants.append(_granted(id, vendor, int(memory), int(cores)))
                continue
            where = f"container {number}, device {len(grants)}"
            grant = _grant(piece, where, annotation, vendor)
            if isinstance(grant, Grant):
                grants.append(grant)
            else:
                problem = problem or grant
        slots.append(tuple(grants))
    return tuple(slots), problem


def containers_of(slots: Slots, asking: Sequence[bool]) -> tuple[int | None, ...]:
    """For each slot, the index of its container; None where the pod has no container for it.

    ``asking``: for each container in spec order, init containers first, whether it asks for this
    vendor's devices. HAMi 2.10 writes no slot for a container that asks for none (its issues 2899
    and 2900), and its plugin appends empty ones, so a slot's position alone says nothing. But only
    containers that ask have devices: the k-th filled slot belongs to the k-th of them. Where that
    cannot be, a text with a slot for every container is read by position.
    """
    filled = [number for number, slot in enumerate(slots) if slot]
    askers = [number for number, asks in enumerate(asking) if asks]
    if filled == askers:  # The usual: both ways of reading say the same.
        return tuple([number if slot else None for number, slot in enumerate(slots)])
    terminated = len(slots) - bool(slots and not slots[-1])
    matching = len(filled) == len(askers) and all(number < len(asking) for number in filled)
    if terminated >= len(asking) and not matching:
        return tuple(number if number < len(asking) else None for number in range(len(slots)))
    owner = dict(zip(filled, askers, strict=False))
    return tuple(map(owner.get, range(len(slots))))


def _grant(piece: str, where: str, annotation: str, vendor: VendorKey) -> Grant | Malformed:
    bad = partial(fault_in_field, annotation, where)
    fields = piece.split(",")
    if len(fields) < 4:
        return bad("", piece, f"{len(fields)} fields instead of id,type,memory,cores")
    numbers = []
    for name, text in (("memory", fields[2]), ("cores", fields[3])):
        value = go_int32(text)
        if value is None:
            return bad(name, text, NOT_INT32)
        if value < 0:
            return bad(name, text, "a grant must not be negative")
        numbers.append(value)
    if unusable := id_problem(fields[0]):
        return bad("id", fields[0], unusable)
    return _granted(fields[0], vendor, *numbers)


def _granted(id: str, vendor: VendorKey, memory: int, cores: int) -> Grant:
    return Grant(
        device_id=DeviceId(id),
        vendor=vendor,
        memory_mib=MemoryMiB(memory),
        cores=CorePercent(cores),
    )


def encode_pod_devices(containers: Sequence[Sequence[Grant]]) -> str:
    """One slot per container, with the vendor's key as type.

    The grants' ``slots`` and extras are not written.

    Raises:
        ValueError: a grant that could not be read back; names the device and the field.
    """
    return "".join("".join(map(_device, grants)) + ";" for grants in containers)


def _device(grant: Grant) -> str:
    if problem := id_problem(grant.device_id):
        raise ValueError(f"grant on device {grant.device_id!r}: id: {problem}")
    for field, value in (("memory_mib", grant.memory_mib), ("cores", grant.cores)):
        if value < 0 or not is_int32(value):
            raise ValueError(
                f"grant on device {grant.device_id!r}: {field}: {value} is negative or beyond "
                "32 bits"
            )
    return f"{grant.device_id},{grant.vendor},{grant.memory_mib},{grant.cores}:"
