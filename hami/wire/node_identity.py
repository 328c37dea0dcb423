"""How each vendor's agent on a node finds the pod it serves: ``NVIDIA=kubelet,DCU=lock``.

An agent that reads kubelet's records needs no node lock; one that is not named here, or says
``lock``, expects the lock of its vendor's profile to be held.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final, Literal

from hami.domain.objects import Node
from hami.domain.profile import VendorProfile
from hami.domain.slices import Identity
from hami.domain.units import VendorKey
from hami.wire import keys

MOST_NAME: Final = 253
"""Characters of an object's name."""


SIMULATED: Final = "simulated"
"""Of a node without a machine: nobody serves pods there, and no agent has to be heard."""

_OURS = "\n"


def marked(register: str, profile: VendorProfile) -> str:
    """A device list as agents of ours publish it.

    HAMi's plugins may write the very same one; a blank at the end, which readers of JSON skip,
    tells whose it is.
    """
    return register + _OURS if profile.register_codec == "json" else register


def lock_of(
    node: Node, profile: VendorProfile, *, silent: bool = False
) -> Literal["mutex", "private", "none"]:
    """Which lock a pod needs there before it is bound with devices of this vendor.

    An agent that says ``kubelet`` is not believed when it is ``silent``, or when somebody else has
    published the node's devices since.
    """
    for entry in node.annotations.get(keys.NODE_IDENTITY, "").split(","):
        vendor, _, identity = (part.strip() for part in entry.partition("="))
        if vendor != profile.key:
            continue
        if identity == SIMULATED:
            return "none"
        register = node.annotations.get(profile.node_annotations.register, "")
        replaced = profile.register_codec == "json" and not register.endswith(_OURS)
        if identity == "kubelet" and not silent and not replaced:
            return "none"
    return profile.lock


def lease_name(node: str, vendor: VendorKey) -> str:
    """Of the Lease by which the vendor's agent on this node is known to live."""
    name = f"hami-{re.sub('[^a-z0-9]', '-', vendor.lower())}-{node}"
    if len(name) <= MOST_NAME:
        return name
    return f"{name[: MOST_NAME - 17]}-{hashlib.sha256(name.encode()).hexdigest()[:16]}"


def without_identity(text: str, vendor: VendorKey) -> str | None:
    """``text`` without this vendor's entry; None where none is left."""
    entries = [part.strip() for part in text.split(",") if part.strip()]
    return ",".join(e for e in entries if e.partition("=")[0].strip() != vendor) or None


def merged_identity(text: str, vendor: VendorKey, identity: Identity) -> str:
    """``text`` with this vendor's entry as given, every other one as it was and where it was."""
    entry = f"{vendor}={identity}"
    entries = [part.strip() for part in text.split(",") if part.strip()]
    ours = [n for n, part in enumerate(entries) if part.partition("=")[0].strip() == vendor]
    if not ours:
        return ",".join([*entries, entry])
    entries[ours[0]] = entry
    return ",".join(part for n, part in enumerate(entries) if n not in ours[1:])
