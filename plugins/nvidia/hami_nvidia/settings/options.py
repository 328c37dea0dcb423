"""The flags and variables of the node agent that are NVIDIA's.

Names, variables and meanings are those of HAMi's device plugin; those at the end are ours. A flag
or variable is the process's default: it overrides the section ``nvidia:`` of the device
configuration, and an entry of the per-node configuration overrides it.
"""

from __future__ import annotations

from hami.domain.options import NodeOption, OptionKind
from hami_nvidia.settings.config import SECTION

MIG_STRATEGIES = ("none", "single", "mixed")
LIST_STRATEGIES = ("envvar", "volume-mounts", "cdi-annotations", "cdi-cri")
ID_STRATEGIES = ("uuid", "index")
DISCOVERY_STRATEGIES = ("auto", "nvml", "tegra")

_SWITCH, _INTEGER = OptionKind.SWITCH, OptionKind.INTEGER
_NUMBER, _LIST = OptionKind.NUMBER, OptionKind.LIST


def _option(
    key: str,
    names: str,
    text: str,
    default: str,
    kind: OptionKind = OptionKind.TEXT,
    choices: tuple[str, ...] = (),
) -> NodeOption:
    """``names``: flags and variables, separated by spaces."""
    return NodeOption(
        section=SECTION,
        key=key,
        flags=tuple(name for name in names.split() if name.startswith("--")),
        variables=tuple(name for name in names.split() if not name.startswith("--")),
        help=text,
        default=default,
        kind=kind,
        choices=choices,
    )


_DEVICES = (
    _option(
        "resourceCountName",
        "--resource-name RESOURCE_NAME",
        "The resource that kubelet counts.",
        "nvidia.com/gpu",
    ),
    _option(
        "deviceSplitCount",
        "--device-split-count DEVICE_SPLIT_COUNT",
        "How many containers may share a GPU.",
        "10",
        _INTEGER,
    ),
    _option(
        "deviceMemoryScaling",
        "--device-memory-scaling DEVICE_MEMORY_SCALING",
        "Publish this many times the memory that a GPU has; above 1 is oversubscription.",
        "1.0",
        _NUMBER,
    ),
    _option(
        "deviceCoreScaling",
        "--device-cores-scaling DEVICE_CORES_SCALING",
        "Publish this many times the compute that a GPU has.",
        "1.0",
        _NUMBER,
    ),
    _option(
        "disableCoreLimit",
        "--disable-core-limit DISABLE_CORE_LIMIT",
        "Never limit compute, whatever a pod asked for.",
        "false",
        _SWITCH,
    ),
    _option(
        "migStrategy",
        "--mig-strategy MIG_STRATEGY",
        "How MIG devices that somebody else made are offered.",
        "none",
        choices=MIG_STRATEGIES,
    ),
    _option(
        "deviceDiscoveryStrategy",
        "--device-discovery-strategy DEVICE_DISCOVERY_STRATEGY",
        "How GPUs are found; Tegra has no NVML and is refused.",
        "auto",
        choices=DISCOVERY_STRATEGIES,
    ),
    _option(
        "failOnInitError",
        "--fail-on-init-error FAIL_ON_INIT_ERROR",
        "Without a working driver: report an error and try again; false: a node without GPUs.",
        "true",
        _SWITCH,
    ),
)

_CONTAINERS = (
    _option(
        "deviceListStrategy",
        "--device-list-strategy DEVICE_LIST_STRATEGY",
        f"With identity lock, how a container is told its GPUs: {', '.join(LIST_STRATEGIES)}.",
        "envvar",
        _LIST,
    ),
    _option(
        "deviceIDStrategy",
        "--device-id-strategy DEVICE_ID_STRATEGY",
        "With identity lock, how GPUs are named to the container's runtime.",
        "uuid",
        choices=ID_STRATEGIES,
    ),
    _option(
        "passDeviceSpecs",
        "--pass-device-specs PASS_DEVICE_SPECS",
        "With identity lock, hand the device files to kubelet too.",
        "false",
        _SWITCH,
    ),
    _option(
        "gdrcopyEnabled",
        "--gdrcopy-enabled GDRCOPY_ENABLED",
        "Give every container what GDRCopy needs.",
        "false",
        _SWITCH,
    ),
    _option(
        "gdsEnabled",
        "--gds-enabled GDS_ENABLED",
        "Give every container what GPUDirect Storage needs.",
        "false",
        _SWITCH,
    ),
    _option(
        "mofedEnabled",
        "--mofed-enabled MOFED_ENABLED",
        "Give every container the InfiniBand devices of MOFED.",
        "false",
        _SWITCH,
    ),
    _option(
        "imexChannelIDs",
        "--imex-channel-ids IMEX_CHANNEL_IDS",
        "IMEX channels that every container gets: none, or 0.",
        "none",
        _LIST,
    ),
    _option(
        "imexRequired",
        "--imex-required IMEX_REQUIRED",
        "Refuse a container when an IMEX channel does not exist on the node.",
        "false",
        _SWITCH,
    ),
    _option(
        "cdiAnnotationPrefix",
        "--cdi-annotation-prefix CDI_ANNOTATION_PREFIX",
        "How annotations of the strategy cdi-annotations begin.",
        "cdi.k8s.io/",
    ),
    _option(
        "nvidiaCDIHookPath",
        "--nvidia-cdi-hook-path --nvidia-ctk-path NVIDIA_CDI_HOOK_PATH NVIDIA_CTK_PATH",
        "The program on the node that CDI hooks run; as in the node's own CDI spec if not given.",
        "",
    ),
)

_PATHS = (
    _option(
        "nvidiaDriverRoot",
        "--nvidia-driver-root NVIDIA_DRIVER_ROOT",
        "Where the driver is installed on the node.",
        "/",
    ),
    _option(
        "nvidiaDevRoot",
        "--nvidia-dev-root --dev-root NVIDIA_DEV_ROOT",
        "Below which directory of the node /dev is; the driver's root if not given and it has one.",
        "",
    ),
    _option(
        "containerDriverRoot",
        "--container-driver-root --driver-root-ctr-path DRIVER_ROOT_CTR_PATH CONTAINER_DRIVER_ROOT",
        "Where the agent's own container sees the driver's root.",
        "/driver-root",
    ),
    _option(
        "hookPath",
        "--hook-path HOOK_PATH",
        "The directory of the node below which the library lies, in vgpu/.",
        "/usr/local",
    ),
)

_HEALTH = (
    _option(
        "disableHealthChecks",
        "DP_DISABLE_HEALTHCHECKS",
        "XIDs that say nothing of a GPU's health, or all.",
        "13,31,43,45,68,109 besides those given",
    ),
    _option(
        "enableHealthChecks",
        "DP_ENABLE_HEALTHCHECKS",
        "XIDs that count although they are disabled, or all.",
        "none",
    ),
    _option(
        "enableTopologyScore",
        "--enable-topology-score ENABLE_TOPOLOGY_SCORE",
        "Publish how well the GPUs are linked.",
        "true",
        _SWITCH,
    ),
)

_OURS = (
    _option(
        "healthRecovery",
        "--health-recovery NVIDIA_HEALTH_RECOVERY",
        "Seconds without a new error after which a GPU is healthy again; 0: never.",
        "300",
        _NUMBER,
    ),
    _option(
        "contextReserveMiB",
        "--context-reserve-mib NVIDIA_CONTEXT_RESERVE_MIB",
        "Memory that each CUDA context is charged for itself, in MiB; auto: by the GPU's size.",
        "auto",
    ),
    _option(
        "library",
        "--library NVIDIA_LIBRARY",
        "The libvgpu.so that the agent puts onto the node; the packaged one if not given.",
        "",
    ),
    _option(
        "cdiKind",
        "--cdi-kind NVIDIA_CDI_KIND",
        "The kind of the node's own CDI spec, as nvidia-ctk writes it.",
        "nvidia.com/gpu",
    ),
)

NODE_OPTIONS = (*_DEVICES, *_CONTAINERS, *_PATHS, *_HEALTH, *_OURS)
"""Every option, in the order of the help text."""
