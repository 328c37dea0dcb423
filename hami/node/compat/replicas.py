"""The ids that HAMi's device plugin lists: several replicas of each device, which name it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from hami.domain.devices import Device
from hami.node.kubelet.tokens import Token

LONGEST = 63
"""Characters that kubelet takes of a device id."""

_LONGEST_STEM = 56
"""Characters of a replica's id before its number, of which six digits must be enough."""
_DIGEST = 16
_UUID_DASHES = 5
"""In ``GPU-8-4-4-4-12``."""


def replicas(devices: Sequence[Device], *, numa: bool) -> tuple[Token, ...]:
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
