"""The NVIDIA vendor as data: names, annotation keys, defaults, and how each mode is counted."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from hami.domain.profile import (
    ALL_COLUMNS,
    Column,
    ModeRules,
    NodeAnnotations,
    PodAnnotations,
    ResourceNames,
    VendorProfile,
)
from hami.domain.units import CorePercent, MemoryMiB, VendorKey
from hami_nvidia.schedule.mig_annotation import MIG_ANNOTATION
from hami_nvidia.schedule.mig_placement import MIG_MODE
from hami_nvidia.schedule.node_annotations import SCORES_ANNOTATION
from hami_nvidia.settings.config import NvidiaConfig

VENDOR = VendorKey("NVIDIA")

MOUNTED = "/var/run/nvidia-container-devices"
"""A runtime that takes devices from mounts shows each one that has a mount of /dev/null here."""
PRELOADED_AT = "/etc/ld.so.preload"
"""What brings the library into every program of a container."""
LIBRARY_SEEN_IN = "/usr/local/vgpu"
"""Where a container has the library, unless a node's ``hookPath`` says otherwise."""

MODES = MappingProxyType(
    {
        "": ModeRules(prefilter=ALL_COLUMNS),
        "hami-core": ModeRules(prefilter=ALL_COLUMNS),
        # Memory and cores of a request say little about MIG: its profile does.
        MIG_MODE: ModeRules(
            prefilter=frozenset({Column.HEALTH, Column.CORDON, Column.SELECTION, Column.SLOTS}),
            several_slices_per_device=True,
            placements=True,
        ),
    }
)
"""How devices are counted, by the mode they publish; an empty mode is shared as ``hami-core``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NvidiaProfile(VendorProfile):
    """The profile, and what only NVIDIA's admission knows.

    ``core_policy``: the value of ``GPU_CORE_UTILIZATION_POLICY``; empty: the variable is not set.
    ``overwrite_env``: hide every GPU from containers that ask for none.
    """

    core_policy: str = ""
    overwrite_env: bool = False


def profile_of(config: NvidiaConfig) -> NvidiaProfile:
    return NvidiaProfile(
        key=VENDOR,
        resources=ResourceNames(
            count=config.count_name,
            memory=config.memory_name,
            memory_percentage=config.percentage_name,
            cores=config.cores_name,
            priority=config.priority_name,
        ),
        node_annotations=NodeAnnotations(
            register="hami.io/node-nvidia-register",
            handshake="hami.io/node-handshake",
            also_written=(SCORES_ANNOTATION,),
        ),
        pod_annotations=PodAnnotations(
            to_allocate="hami.io/vgpu-devices-to-allocate",
            allocated="hami.io/vgpu-devices-allocated",
            also_written=(MIG_ANNOTATION,),
            use_type=("nvidia.com/use-gputype",),
            nouse_type=("nvidia.com/nouse-gputype",),
            use_uuid=("nvidia.com/use-gpuuuid",),
            nouse_uuid=("nvidia.com/nouse-gpuuuid",),
            numa_bind="nvidia.com/numa-bind",
            mode="nvidia.com/vgpu-mode",
        ),
        memory_factor=max(config.memory_factor, 1),
        default_count=config.default_count,
        default_memory_mib=MemoryMiB(config.default_memory),
        default_cores=CorePercent(config.default_cores),
        liveness="capacity",
        lock="mutex",
        runtime_class=config.runtime_class,
        # NVIDIA's runtime shows no GPU at all, not even to images that ask for every one.
        hidden_env={"NVIDIA_VISIBLE_DEVICES": "void"},
        guarded_paths=(MOUNTED, PRELOADED_AT, LIBRARY_SEEN_IN),
        modes=MODES,
        core_policy="" if config.core_policy == "default" else config.core_policy,
        overwrite_env=config.overwrite_env,
    )
