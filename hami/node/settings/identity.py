"""How this node's agent finds the pod it serves: through kubelet's records, or by the node lock.

Kubelet's records need a kubelet that hands CDI names to the runtime and a runtime that reads CDI
specs, both without being configured for it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from hami.domain.errors import shortened
from hami.domain.slices import Identity

Asked = Literal["auto", "kubelet", "lock"]
Version = tuple[int, int]

KUBELET_SINCE: Version = (1, 29)
"""The feature gate DevicePluginCDIDevices is on from this version on."""
RUNTIMES_SINCE = MappingProxyType({"containerd": (2, 0), "cri-o": (1, 28)})
"""CDI is on without configuration from these versions on."""

_VERSION = re.compile(r"v?(\d{1,6})\.(\d{1,6})(?!\d)", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityChoice:
    """``why`` is for the log: which version decided, or that it was asked for."""

    identity: Identity
    why: str


def choose_identity(asked: Asked, kubelet_version: str, runtime_version: str) -> IdentityChoice:
    """Which way it is here; the versions as in a node's ``status.nodeInfo``.

    ``v1.36.3-gke.1`` and ``containerd://2.4.2``: what vendors append is left out. A version that
    cannot be read decides for the lock, which works everywhere.
    """
    problem = _kubelet_problem(kubelet_version) or _runtime_problem(runtime_version)
    if asked != "auto":
        doubt = f", although {problem}" if problem and asked == "kubelet" else ""
        return IdentityChoice(identity=asked, why=f"asked for by --identity {asked}{doubt}")
    if problem:
        return IdentityChoice(identity="lock", why=problem)
    return IdentityChoice(
        identity="kubelet",
        why=f"kubelet {kubelet_version} and {runtime_version} speak CDI by default",
    )


def _kubelet_problem(text: str) -> str:
    version = _version(text)
    if version is None:
        return f"kubelet's version {shortened(text)!r} cannot be read"
    if version < KUBELET_SINCE:
        return f"kubelet {text} is older than {_written(KUBELET_SINCE)}"
    return ""


def _runtime_problem(text: str) -> str:
    name, _, number = text.partition("://")
    since = RUNTIMES_SINCE.get(name)
    if since is None:
        known = " and ".join(sorted(RUNTIMES_SINCE))
        return f"the container runtime {shortened(text)!r} is none of {known}"
    version = _version(number)
    if version is None:
        return f"the container runtime's version {shortened(text)!r} cannot be read"
    if version < since:
        return f"{text} is older than {name} {_written(since)}"
    return ""


def _version(text: str) -> Version | None:
    match = _VERSION.match(text)
    return (int(match[1]), int(match[2])) if match else None


def _written(version: Version) -> str:
    return f"{version[0]}.{version[1]}"
