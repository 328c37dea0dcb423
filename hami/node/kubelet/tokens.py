"""What kubelet counts: the device ids that an agent lists.

In the identity mode ``kubelet`` they are tokens without a device behind them: kubelet counts how
many slices a node has, and the scheduler's grant alone says which device. In the mode ``lock`` they
are HAMi's replicas, which name their device.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from hami.domain.devices import Device

LONGEST = 63
"""Characters that kubelet takes of a device id."""

_LONGEST_STEM = 56
"""Characters of a replica's id before its number, of which six digits must be enough."""
_DIGEST = 16
_TOKEN = re.compile(r"slot-(0|[1-9][0-9]*)")
_UUID_DASHES = 5
"""In ``GPU-8-4-4-4-12``."""


@dataclass(frozen=True, slots=True)
class Token:
    """One id of the list; ``numa`` is the node for Topology Manager, None for none."""

    id: str
    healthy: bool
    numa: int | None = None


def kubelet_tokens(
    devices: Sequence[Device], held: Collection[str], on_failed: Collection[str]
) -> tuple[Token, ...]:
    """``slot-<n>`` for every slot of the node, and what is held beyond those.

    ``held`` are the ids that kubelet's checkpoint shows with a container, ``on_failed`` those of
    them whose slices are on unhealthy devices. A held id stays healthy whatever its device is:
    kubelet fails a pod of an unhealthy one when it restarts. Of the free ones as many are healthy
    as slots are left on healthy devices.
    """
    total = sum(device.slots for device in devices)
    taken = frozenset(held)
    slots = sum(device.slots for device in devices if device.healthy)
    left = max(0, slots - len(taken.difference(on_failed)))
    tokens = []
    for number in range(total):
        name = f"slot-{number}"
        free = name not in taken
        tokens.append(Token(name, not free or left > 0))
        left -= free
    # From before a device was removed, or of the plugin that served this node before us.
    beyond = sorted((name for name in taken if _number(name) >= total), key=_in_order)
    tokens += [Token(name, healthy=True) for name in beyond]
    return tuple(tokens)


def lock_tokens(devices: Sequence[Device], *, numa: bool) -> tuple[Token, ...]:
    """HAMi's replicas, ``<device id>-<n>``, each as healthy as its device; ``numa``: with its node.

    Of a device id that would make them too long, the rest becomes a digest.
    """
    return tuple(
        Token(
            f"{_stem(device.id)}-{number}",
            device.healthy,
            device.numa if numa and device.numa >= 0 else None,
        )
        for device in devices
        for number in range(device.slots)
    )


def device_of(token_id: str, known: Iterable[str] = ()) -> str:
    """The device that a replica is of.

    One of ``known`` (ids of devices) if it fits one. Else by HAMi's rule: ``<id>::<n>`` and
    ``<word>-<uuid>-<n>`` lose their number, and everything else is a device itself.
    """
    stem, dash, number = token_id.rpartition("-")
    numbered = bool(dash) and number.isascii() and number.isdecimal()
    for device in known:
        if token_id == device or (numbered and stem == _stem(device)):
            return device
    if "::" in token_id:
        return token_id.partition("::")[0]
    if numbered and stem.count("-") == _UUID_DASHES:
        return stem
    return token_id


def _stem(device_id: str) -> str:
    if len(device_id) <= _LONGEST_STEM:
        return device_id
    digest = hashlib.sha256(device_id.encode()).hexdigest()[:_DIGEST]
    return f"{device_id[: _LONGEST_STEM - _DIGEST - 1]}-{digest}"


def _number(name: str) -> float:
    """Of ``slot-<n>``; what is no token of ours is beyond every number."""
    match = _TOKEN.fullmatch(name)
    return int(match[1]) if match else float("inf")


def _in_order(name: str) -> tuple[float, str]:
    return _number(name), name
