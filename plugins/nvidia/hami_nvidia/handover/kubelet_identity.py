"""What a container gets through the CDI spec of its slice, with identity ``kubelet``.

The node's own CDI spec brings the driver. On a node without one the device files are handed over
alone, and NVIDIA's container runtime is asked for the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hami.domain.slices import ContainerEdits, Mount, Slice
from hami.domain.units import DeviceId
from hami_nvidia.handover.agent_cdi import write_gpu_spec
from hami_nvidia.handover.context_reserves import too_small
from hami_nvidia.handover.device_list import (
    GPU_KIND,
    VISIBLE_DEVICES,
    channel_files,
    device_files,
    mode_environment,
    stable_uuid,
)
from hami_nvidia.handover.gpudirect import extra_files, extra_mounts
from hami_nvidia.handover.hardware import Hardware
from hami_nvidia.handover.library import NAME, Library
from hami_nvidia.handover.limits import (
    control_disabled,
    each_compute_limit,
    limits_environment,
    page_settings,
)
from hami_nvidia.handover.node_cdi import node_spec
from hami_nvidia.schedule.profile import PRELOADED_AT


def device_edits(ids: Sequence[DeviceId], hardware: Hardware) -> ContainerEdits:
    """The devices themselves, without any limit.

    Beside CDI, ``NVIDIA_VISIBLE_DEVICES`` is left as kubelet's answer has it, ``void``: a runtime
    that also reads it must not add devices of its own.

    Raises:
        NoPlace: a device is not on this node any more.
        ChannelMissing: an IMEX channel is required, and is not on this node.
        SpecFailed: our CDI spec cannot be written.
    """
    settings = hardware.settings
    spec = node_spec(settings)
    if spec is None:
        hardware.report(
            f"no CDI spec of kind {settings.cdi_kind} in "
            f"{', '.join(map(str, settings.cdi_dirs))}: containers get the device files alone, "
            f"and the driver's libraries only if they run with NVIDIA's runtime; write a spec with "
            f"nvidia-ctk cdi generate --output=/var/run/cdi/nvidia.yaml"
        )
        return ContainerEdits(
            env={VISIBLE_DEVICES: ",".join(ids), **mode_environment(settings)},
            device_nodes=(*device_files(ids, hardware.places(), settings), *extra_files(settings)),
            mounts=tuple(extra_mounts(settings)),
        )
    kind = settings.cdi_kind
    if not all(id in spec.devices for id in ids):
        write_gpu_spec(spec, ids, hardware)
        kind = GPU_KIND
    return ContainerEdits(
        cdi_devices=tuple(f"{kind}={id}" for id in ids),
        device_nodes=(*channel_files(settings).values(), *extra_files(settings)),
        mounts=tuple(extra_mounts(settings)),
    )


def with_limits(
    base: ContainerEdits, slice: Slice, hardware: Hardware, library: Library
) -> ContainerEdits:
    """``base``, and what holds the limits; the core adds the limits page and the usage region.

    Our library reads the page. HAMi's has the variables alone, so it gets two more: where it finds
    itself again, and a file for what its processes share. That file is the container's own, and
    named by its limits, for whoever makes it first decides about them: two containers that share
    a volume at /tmp must not meet in it.
    """
    settings = hardware.settings
    env = limits_environment(slice, settings)
    if len(slice.grants) > 1:
        env |= each_compute_limit(slice)
    shared = stable_uuid(f"{slice.id} {sorted(env.items())}")
    env["CUDA_DEVICE_MEMORY_SHARED_CACHE"] = f"/tmp/hami-{shared}.cache"  # noqa: S108
    seen_at = str(settings.library_dir / NAME)
    env["CUDA_REDIRECT"] = seen_at
    mounts = [Mount(host_path=str(library.path), container_path=seen_at)]
    reserves = hardware.contexts.of([grant.device_id for grant in slice.grants], settings)
    if not control_disabled(slice):
        if problem := too_small(slice, reserves):
            hardware.report(problem)
        mounts.append(Mount(host_path=str(library.preload), container_path=PRELOADED_AT))
    return replace(
        base,
        env={**base.env, **env},
        mounts=(*base.mounts, *mounts),
        page=page_settings(slice, settings, reserves),
    )
