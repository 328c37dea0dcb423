"""How each vendor's agent on a node finds the pod it serves: ``NVIDIA=kubelet,DCU=lock``.

An agent that reads kubelet's records (``kubelet``) needs no node lock. An agent that says ``lock``,
or is not named here, expects the scheduler to hold the lock of its vendor's profile.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final, Literal

from hami.domain.kubernetes.objects import Node
from hami.domain.profile import VendorProfile
from hami.domain.slices import Identity
from hami.domain.units import VendorKey
from hami.wire import keys

MOST_NAME: Final = 253
"""The most characters in an object's name
(https://kubernetes.io/docs/concepts/overview/working-with-objects/names/)."""


SIMULATED: Final = "simulated"
"""The entry of a node without a machine: no agent serves pods there or is heard."""

_OURS = "\n"


def marked(register: str, profile: VendorProfile) -> str:
    """A device list with our agents' mark.

    HAMi's plugins may write the very same list. A line break at the end, which readers of JSON
    skip, tells ours from theirs.
    """
    return register + _OURS if profile.register_codec == "json" else register


def lock_of(
    node: Node, profile: VendorProfile, *, silent: bool = False
) -> Literal["mutex", "private", "none"]:
    """Which lock a pod needs on the node before it is bound with this vendor's devices.

    An agent that says ``kubelet`` is not trusted while it is ``silent``, or when another writer has
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
    """The name of the Lease that the vendor's agent on this node renews."""
    name = f"hami-{re.sub('[^a-z0-9]', '-', vendor.lower())}-{node}"
    if len(name) <= MOST_NAME:
        return name
    return f"{name[: MOST_NAME - 17]}-{hashlib.sha256(name.encode()).hexdigest()[:16]}"


def without_identity(text: str, vendor: VendorKey) -> str | None:
    """``text`` without this vendor's entry; None where no entry is left."""
    entries = [part.strip() for part in text.split(",") if part.strip()]
    return ",".join(e for e in entries if e.partition("=")[0].strip() != vendor) or None


def merged_identity(text: str, vendor: VendorKey, identity: Identity) -> str:
    """``text`` with this vendor's entry replaced or appended; the others keep their places."""
    entry = f"{vendor}={identity}"
    entries = [part.strip() for part in text.split(",") if part.strip()]
    ours = [n for n, part in enumerate(entries) if part.partition("=")[0].strip() == vendor]
    if not ours:
        return ",".join([*entries, entry])
    entries[ours[0]] = entry
    return ",".join(part for n, part in enumerate(entries) if n not in ours[1:])
