"""How each vendor's agent on a node finds the pod it serves: ``NVIDIA=kubelet,DCU=lock``.

An agent that reads kubelet's records needs no node lock; one that is not named here, or says
``lock``, expects the lock of its vendor's profile to be held.
"""

from __future__ import annotations

from typing import Literal

from hami.domain.objects import Node
from hami.domain.profile import VendorProfile
from hami.domain.slices import Identity
from hami.domain.units import VendorKey
from hami.wire import keys


def lock_of(node: Node, profile: VendorProfile) -> Literal["mutex", "private", "none"]:
    """Which lock a pod needs there before it is bound with devices of this vendor."""
    for entry in node.annotations.get(keys.NODE_IDENTITY, "").split(","):
        vendor, _, identity = entry.partition("=")
        if vendor.strip() == profile.key and identity.strip() == "kubelet":
            return "none"
    return profile.lock


def merged_identity(text: str, vendor: VendorKey, identity: Identity) -> str:
    """``text`` with this vendor's entry as given, every other one as it was and where it was."""
    entry = f"{vendor}={identity}"
    entries = [part.strip() for part in text.split(",") if part.strip()]
    ours = [n for n, part in enumerate(entries) if part.partition("=")[0].strip() == vendor]
    if not ours:
        return ",".join([*entries, entry])
    entries[ours[0]] = entry
    return ",".join(part for n, part in enumerate(entries) if n not in ours[1:])
