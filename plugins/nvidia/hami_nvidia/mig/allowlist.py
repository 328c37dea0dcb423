"""Which MIG profiles a GPU may offer, and which of NVML's profiles an allowed name means."""

from __future__ import annotations

from collections.abc import Sequence

from hami.domain.units import CorePercent
from hami_nvidia.nvml.interface import InstanceProfile
from hami_nvidia.schedule.mig_placement import MigPlacement, MigProfile
from hami_nvidia.settings.config import MigAllowlistEntry

_PLAIN = range(7)
"""NVML's numbers of the profiles 1g, 2g, 3g, 4g, 7g, 8g and 6g without variants."""


def registered_model(name: str) -> str:
    """The product as it is published: ``Tesla T4`` becomes ``NVIDIA-Tesla T4``, as in HAMi."""
    return name if name.startswith("NVIDIA") else f"NVIDIA-{name}"


def allowed_names(model: str, allowlist: Sequence[MigAllowlistEntry]) -> tuple[str, ...] | None:
    """The profiles that the list allows on this model; None: the list does not know it.

    The longest model that is part of the name counts. HAMi takes the first, by which an H200 gets
    the profiles of an H20.
    """
    matching = [(len(part), entry) for entry in allowlist for part in entry.models if part in model]
    if not matching:
        return None
    _, longest = max(matching, key=lambda found: found[0])
    return tuple(dict.fromkeys(longest.profiles))


def offered_profiles(
    model: str, profiles: Sequence[InstanceProfile], allowlist: Sequence[MigAllowlistEntry]
) -> tuple[MigProfile, ...] | None:
    """What a GPU publishes, in the list's order; None: the list does not know the model.

    Names are the list's and everything else is NVML's. Without any list, every plain profile
    under NVIDIA's name. Of two names for one profile the first counts.
    """
    if not allowlist:
        names: Sequence[str] = [p.name for p in profiles if p.number in _PLAIN]
    else:
        allowed = allowed_names(model, allowlist)
        if allowed is None:
            return None
        names = allowed
    whole = max((p.multiprocessors for p in profiles if p.number in _PLAIN), default=0)
    offered: dict[int, MigProfile] = {}
    for name in names:
        profile = profile_named(name, profiles)
        if profile is not None and profile.id not in offered and whole:
            offered[profile.id] = MigProfile(
                name=name,
                memory_mib=profile.memory_mib,
                cores=CorePercent(-(-100 * profile.multiprocessors // whole)),
                slices=profile.slices,
                placements=tuple(
                    MigPlacement(start=span.start, size=span.size) for span in profile.spans
                ),
            )
    return tuple(offered.values())


def profile_named(name: str, profiles: Sequence[InstanceProfile]) -> InstanceProfile | None:
    """NVML's profile of this very name; else the plain one with as many compute slices.

    The second is HAMi's rule: ``3g.48gb`` means three slices, whatever their memory. It knows no
    other, so that ``1g.20gb`` of an A100 with 80 GB is a real 20 GB instance here alone.
    """
    for profile in profiles:
        if profile.name == name:
            return profile
    size, _, memory = name.partition(".")
    if "+" in memory or "-" in memory:  # a variant, such as 1g.5gb+me, has no substitute
        return None
    return next((p for p in profiles if p.number in _PLAIN and f"{p.slices}g" == size), None)
