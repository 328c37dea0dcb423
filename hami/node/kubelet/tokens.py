"""What kubelet counts: the device ids that an agent lists.

They are tokens without a device behind them: kubelet counts how many slices a node has, and the
scheduler's grant alone says which device. (In the mode ``lock`` they name their device:
:mod:`hami.node.compat.replicas`.)
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from hami.domain.devices import Device

_TOKEN = re.compile(r"slot-(0|[1-9][0-9]*)")


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


def _number(name: str) -> float:
    """Of ``slot-<n>``; what is no token of ours is beyond every number."""
    match = _TOKEN.fullmatch(name)
    return int(match[1]) if match else float("inf")


def _in_order(name: str) -> tuple[float, str]:
    return _number(name), name
