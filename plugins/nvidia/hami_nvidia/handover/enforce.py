"""A slice made real: what its container gets, in the form that kubelet is answered in.

With identity ``kubelet`` the container gets it through the CDI spec of its slice. The node's own
CDI spec brings the driver; on a node without one the device files are handed over alone, and
NVIDIA's container runtime is asked for the rest. HAMi's form is in ``compat``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import msgspec

from hami.domain.errors import HamiError
from hami.domain.slices import ContainerEdits, Mount, Slice
from hami.domain.units import DeviceId
from hami_nvidia.handover import library
from hami_nvidia.handover.agent_cdi import write_gpu_spec
from hami_nvidia.handover.device_files import (
    GPU_KIND,
    VISIBLE_DEVICES,
    channel_files,
    device_files,
    extra_files,
    extra_mounts,
    mode_environment,
    stable_uuid,
)
from hami_nvidia.handover.files import write_whole
from hami_nvidia.handover.hardware import Hardware
from hami_nvidia.handover.library import NAME, Library
from hami_nvidia.handover.limits import (
    control_disabled,
    each_compute_limit,
    limits_environment,
    page_settings,
    too_small,
)
from hami_nvidia.handover.node_cdi import node_spec
from hami_nvidia.mig.claims import claims_of
from hami_nvidia.mig.instances import InstanceIdentity
from hami_nvidia.schedule.mig_placement import MIG_INSTANCE, MIG_MODE
from hami_nvidia.schedule.profile import PRELOADED_AT
from hami_nvidia.settings.node_settings import NodeSettings

_MIG_DEVICE = "MIG-"
_RECORD = "nvidia.json"


class NotEnforced(HamiError):
    """A slice that cannot be made real as the node is now."""


class Answer(Protocol):
    """The form in which containers get their devices and limits."""

    def devices(self, ids: Sequence[DeviceId], hardware: Hardware, owner: str) -> ContainerEdits:
        """The devices without any limit; ``owner`` makes the answer's names unique."""

    def static_devices(self, ids: Sequence[DeviceId], hardware: Hardware) -> ContainerEdits:
        """The same for devices that kubelet chose itself."""

    def shared_directory(self, slice: Slice, settings: NodeSettings) -> str:
        """Make what the limits need on the node: a directory to be removed later, or empty."""

    def with_limits(
        self, base: ContainerEdits, slice: Slice, hardware: Hardware, library: Library
    ) -> ContainerEdits:
        """``base``, and what holds the limits of a shared GPU."""

    def keep(self, hardware: Hardware) -> None:
        """Put back what the node must have for its answers."""


class CdiAnswer:
    """Through the CDI spec of the slice, and NVIDIA's runtime on a node without a spec."""

    def devices(self, ids: Sequence[DeviceId], hardware: Hardware, owner: str) -> ContainerEdits:  # noqa: ARG002 -- the protocol's signature
        """The devices themselves, without any limit.

        Beside CDI, ``NVIDIA_VISIBLE_DEVICES`` is left as kubelet's answer has it, ``void``: a
        runtime that also reads it must not add devices of its own.

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
                f"and the driver's libraries only if they run with NVIDIA's runtime; write a spec "
                f"with nvidia-ctk cdi generate --output=/var/run/cdi/nvidia.yaml"
            )
            return ContainerEdits(
                env={VISIBLE_DEVICES: ",".join(ids), **mode_environment(settings)},
                device_nodes=(
                    *device_files(ids, hardware.places(), settings),
                    *extra_files(settings),
                ),
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

    def static_devices(self, ids: Sequence[DeviceId], hardware: Hardware) -> ContainerEdits:
        edits = self.devices(ids, hardware, "")
        if edits.cdi_devices:
            # The answer goes to kubelet as it is, and an image may ask NVIDIA's runtime for all.
            return replace(edits, env={**edits.env, VISIBLE_DEVICES: "void"})
        return edits

    def shared_directory(self, slice: Slice, settings: NodeSettings) -> str:  # noqa: ARG002 -- the protocol's
        """It needs none: the core gives each slice its own."""
        return ""

    def with_limits(
        self, base: ContainerEdits, slice: Slice, hardware: Hardware, library: Library
    ) -> ContainerEdits:
        """``base``, and what holds the limits; the core adds the limits page and the usage region.

        Our library reads the page. HAMi's has the variables alone, so it gets two more: where it
        finds itself again, and a file for what its processes share. That file is the container's
        own, and named by its limits, for whoever makes it first decides about them: two containers
        that share a volume at /tmp must not meet in it.
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

    def keep(self, hardware: Hardware) -> None:
        """Nothing: a spec is written when a slice needs it."""


def enforce(slice: Slice, hardware: Hardware, answer: Answer) -> ContainerEdits:
    """What the container gets. The same slice gets the same, as long as its devices live.

    Raises:
        HamiError: the container must not start; says what is missing and who must act.
    """
    if is_mig(slice):
        return _mig_edits(slice, hardware, answer)
    if hardware.settings.mode == MIG_MODE:
        raise NotEnforced(
            f"its grants name whole GPUs, and this node is in mode {MIG_MODE}: its mode was "
            f"changed after the pod was scheduled; delete the pod, so that it is scheduled again"
        )
    return _shared_edits(slice, hardware, answer)


def is_mig(slice: Slice) -> bool:
    """Its devices are MIG devices, made for it or by somebody else; hardware holds their limits."""
    return any(
        grant.extra.get(MIG_INSTANCE) is not None or grant.device_id.startswith(_MIG_DEVICE)
        for grant in slice.grants
    )


def _shared_edits(slice: Slice, hardware: Hardware, answer: Answer) -> ContainerEdits:
    """A part of each GPU, or all of it, held by the library."""
    chosen = _library(slice, hardware.settings)
    base = answer.devices([grant.device_id for grant in slice.grants], hardware, slice.id)
    shared = answer.shared_directory(slice, hardware.settings)
    _record(slice, EnforcedRecord(library=str(chosen.path), shared=shared))
    return answer.with_limits(base, slice, hardware, chosen)


def _mig_edits(slice: Slice, hardware: Hardware, answer: Answer) -> ContainerEdits:
    """MIG devices, with no limit but their own size."""
    made = _made(slice, hardware)
    ids = [each.mig_uuid for each in made] or [grant.device_id for grant in slice.grants]
    base = answer.devices(ids, hardware, slice.id)
    return replace(base, pod_annotations=hardware.made.annotations(slice, made)) if made else base


def _made(slice: Slice, hardware: Hardware) -> Sequence[InstanceIdentity]:
    """The instances of its grants, made if they are not there; none for MIG devices as such."""
    claims = claims_of(slice)
    if not claims:
        return ()
    former = read_record(slice.state_dir).instances
    if hardware.settings.mode != MIG_MODE and not former:
        raise NotEnforced(
            f"its grants are MIG instances, and this node is not in mode {MIG_MODE}: its mode was "
            f"changed after the pod was scheduled; delete the pod, so that it is scheduled again"
        )
    if len(claims) != len(slice.grants):
        raise NotEnforced(
            f"container {slice.container} has {len(claims)} MIG reservations, requested "
            f"{len(slice.grants)} devices; delete the pod, so that it is scheduled again"
        )
    made = tuple(hardware.instances.ensure(claim) for claim in claims)
    _record(slice, EnforcedRecord(instances=made))
    return made


def _library(slice: Slice, settings: NodeSettings) -> Library:
    """The version that this container had at its first start, else the newest."""
    newest = library.install(settings)
    former = read_record(slice.state_dir).library
    if former and Path(former).is_file():
        return replace(newest, path=Path(former))
    return newest


# What was done for a slice, in its own directory: read when its container starts again or ends.


class EnforcedRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``library`` is the version that the container has; ``shared`` HAMi's directory for it.

    ``instances`` are the MIG instances that were made for it, in the order of its grants.
    """

    library: str = ""
    shared: str = ""
    instances: tuple[InstanceIdentity, ...] = ()


def read_record(state_dir: Path) -> EnforcedRecord:
    """Empty for a slice that was not enforced, and for a record that cannot be read.

    A record that was damaged costs a container its library's version at the next start; refusing
    to start it for that would cost more.
    """
    try:
        return msgspec.json.decode((state_dir / _RECORD).read_bytes(), type=EnforcedRecord)
    except (FileNotFoundError, msgspec.DecodeError):
        return EnforcedRecord()


def write_record(state_dir: Path, record: EnforcedRecord) -> None:
    """Written once; the same again is not."""
    if read_record(state_dir) != record:
        state_dir.mkdir(parents=True, exist_ok=True)
        write_whole(state_dir / _RECORD, msgspec.json.encode(record), 0o644)


def _record(slice: Slice, record: EnforcedRecord) -> None:
    try:
        write_record(slice.state_dir, record)
    except OSError as error:
        raise NotEnforced(
            f"{slice.state_dir} cannot be written: {error.strerror}; free some space on the disk "
            f"of the slices"
        ) from error
