"""What a container gets through the CDI spec of its slice, with identity ``kubelet``.

The node's own CDI spec brings the driver. On a node without one the device files are handed over
alone, and NVIDIA's container runtime is asked for the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from hami.domain.slices import ContainerEdits, Mount, Slice
from hami.domain.units import DeviceId
from hami_nvidia import node_specs
from hami_nvidia.extras import extra_files, extra_mounts
from hami_nvidia.handed import (
    VISIBLE_DEVICES,
    Find,
    channel_files,
    device_files,
    mode_environment,
    place_of,
)
from hami_nvidia.library import NAME, Library
from hami_nvidia.limits import (
    control_disabled,
    each_compute_limit,
    limits_environment,
    page_settings,
)
from hami_nvidia.node_cdi import GPU_KIND, node_spec
from hami_nvidia.node_config import NodeSettings


def device_edits(
    ids: Sequence[DeviceId],
    find: Find,
    settings: NodeSettings,
    report: Callable[[str], None],
) -> ContainerEdits:
    """The devices themselves, without any limit.

    Beside CDI, ``NVIDIA_VISIBLE_DEVICES`` is left as kubelet's answer has it, ``void``: a runtime
    that also reads it must not add devices of its own.

    Raises:
        NoPlace: a device is not on this node any more.
        ChannelMissing: an IMEX channel is required, and is not on this node.
        SpecFailed: our CDI spec cannot be written.
    """
    spec = node_spec(settings)
    if spec is None:
        report(
            f"no CDI spec of kind {settings.cdi_kind} in "
            f"{', '.join(map(str, settings.cdi_dirs))}: containers get the device files alone, "
            f"and the driver's libraries only if they run with NVIDIA's runtime; write a spec with "
            f"nvidia-ctk cdi generate --output=/var/run/cdi/nvidia.yaml"
        )
        return ContainerEdits(
            env={VISIBLE_DEVICES: ",".join(ids), **mode_environment(settings)},
            device_nodes=(*device_files(ids, find(), settings), *extra_files(settings)),
            mounts=tuple(extra_mounts(settings)),
        )
    kind = settings.cdi_kind
    if not all(id in spec.devices for id in ids):
        places = find()
        for id in ids:
            place_of(id, places)
        node_specs.write_gpu_spec(spec, places, settings)
        kind = GPU_KIND
    return ContainerEdits(
        cdi_devices=tuple(f"{kind}={id}" for id in ids),
        device_nodes=(*channel_files(settings).values(), *extra_files(settings)),
        mounts=tuple(extra_mounts(settings)),
    )


def with_limits(
    base: ContainerEdits, slice: Slice, settings: NodeSettings, library: Library
) -> ContainerEdits:
    """``base``, and what holds the limits; the core adds the limits page and the usage region."""
    env = limits_environment(slice, settings)
    if len(slice.grants) > 1:
        env |= each_compute_limit(slice)
    mounts = [
        Mount(host_path=str(library.path), container_path=str(settings.library_dir / NAME)),
    ]
    if not control_disabled(slice):
        mounts.append(Mount(host_path=str(library.preload), container_path="/etc/ld.so.preload"))
    return replace(
        base,
        env={**base.env, **env},
        mounts=(*base.mounts, *mounts),
        page=page_settings(slice, settings),
    )
