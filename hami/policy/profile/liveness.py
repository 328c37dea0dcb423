"""Whether the devices that a node published are still there.

A dead vendor's devices stay known (``CardNotHealth``), and what runs on them stays charged.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import assert_never

from hami.domain.kubernetes import quantity
from hami.domain.kubernetes.objects import Node
from hami.domain.profile import VendorProfile
from hami.wire.codecs import Requesting, decode_handshake

HANDSHAKE_PATIENCE = timedelta(seconds=60)
"""How long a node's agent may take to answer before its devices count as gone (HAMi's time)."""


def alive(
    profile: VendorProfile, node: Node, now: datetime, *, absent_is_alive: bool = False
) -> bool:
    """By ``profile.liveness``; ``now`` is local time without a zone, as handshakes are written.

    ``absent_is_alive``: a node that does not list the count resource (a hand-written manifest)
    counts as alive.
    """
    match profile.liveness:
        case "always":
            return True
        case "capacity":
            return _allocatable(profile, node, absent_is_alive=absent_is_alive)
        case "handshake":
            text = node.annotations.get(profile.node_annotations.handshake, "")
            handshake = decode_handshake(text)
            if not isinstance(handshake, Requesting) or handshake.at is None:
                return True
            if now - handshake.at < HANDSHAKE_PATIENCE:
                return True
            return _allocatable(profile, node, absent_is_alive=absent_is_alive)
        case _:
            assert_never(profile.liveness)


def _allocatable(profile: VendorProfile, node: Node, *, absent_is_alive: bool) -> bool:
    listed = (node.allocatable or {}).get(profile.resources.count)
    if listed is None:
        return absent_is_alive
    read = quantity.parse(listed)
    return isinstance(read, quantity.Quantity) and read.value > 0
