"""Keys of HAMi's values.yaml about vendors: their resources' names, and what is special to one."""

from __future__ import annotations

from hami.migration import keys, rules
from hami.migration.keys import HamiKey, not_honoured, translated, without_effect

_PROFILE = (
    "its resources can be shared with a profile, which is data alone: hami plugin new --profile"
)


def name_keys() -> tuple[HamiKey, ...]:
    nvidia = "Name Mem MemPercentage Cores Priority"
    hygon = "Name Mem Cores"
    return (
        *_own_names("nvidia", [f"resource{word}" for word in nvidia.split()], rules.NVIDIA_NAMES),
        *_own_names("hygon", [f"dcuResource{word}" for word in hygon.split()], rules.DCU_NAMES),
        _other("mluResourceName", "cambricon.com/vmlu", "Cambricon"),
        _other("mluResourceMem", "cambricon.com/mlu.smlu.vmemory", "Cambricon"),
        _other("mluResourceCores", "cambricon.com/mlu.smlu.vcore", "Cambricon"),
        _other("metaxResourceName", "metax-tech.com/sgpu", "MetaX"),
        _other("metaxResourceCore", "metax-tech.com/vcore", "MetaX"),
        _other("metaxResourceMem", "metax-tech.com/vmemory", "MetaX"),
        _other("metaxsGPUTopologyAware", "false", "MetaX"),
        _other("enflameResourceNameDRSGCU", "enflame.com/drs-gcu", "Enflame"),
        _other("enflameResourceNameGCUMemory", "enflame.com/gcu-memory", "Enflame"),
        _other("enflameResourceNameGCUCore", "enflame.com/gcu-core", "Enflame"),
        _other("kunlunResourceName", "kunlunxin.com/xpu", "Kunlunxin"),
        _other("kunlunResourceVCountName", "kunlunxin.com/vxpu", "Kunlunxin"),
        _other("kunlunResourceVMemoryName", "kunlunxin.com/vxpu-memory", "Kunlunxin"),
        _other("vastaiResourceName", "vastaitech.com/va", "Vastai"),
        _other("birenResourceName", "birentech.com/gpu", "Biren"),
    )


def _own_names(
    section: str, theirs: list[str], ours: tuple[tuple[str, str], ...]
) -> tuple[HamiKey, ...]:
    vendor = "NVIDIA" if section == "nvidia" else "DCU"
    return tuple(
        translated(
            name,
            default,
            f"deviceConfig.{section}.{setting} and vendors.{vendor}.managedResources",
            rules.resource_name(section, setting),
        )
        for name, (setting, default) in zip(theirs, ours, strict=True)
    )


def _other(name: str, default: object, vendor: str) -> HamiKey:
    return not_honoured(name, default, f"there is no plugin for {vendor} yet; {_PROFILE}")


def device_keys() -> tuple[HamiKey, ...]:
    return (
        *_mock_keys(),
        translated(
            "devices.nvidia.gpuCorePolicy",
            "default",
            "deviceConfig.nvidia.gpuCorePolicy",
            rules.device_setting(
                "nvidia", "gpuCorePolicy", keys.one_of("default", "force", "disable")
            ),
        ),
        translated(
            "devices.nvidia.libCudaLogLevel",
            1,
            "deviceConfig.nvidia.libCudaLogLevel, as a text",
            rules.device_setting("nvidia", "libCudaLogLevel", keys.text),
        ),
        *_vendor("amd", "AMD", "", _lines("amd.com/", "gpu gpumem gpucores")),
        *_vendor("awsneuron", "AWS Neuron", "", _lines("aws.amazon.com/", "neuron neuroncore")),
        *_vendor("kunlun", "Kunlunxin", "on", _lines("kunlunxin.com/", "xpu vxpu vxpu-memory")),
        *_vendor(
            "enflame",
            "Enflame",
            "on",
            _lines("enflame.com/", "drs-gcu gcu-memory gcu-core gcu"),
        ),
        *_vendor("mthreads", "Moore Threads", "on", ["mthreads.com/vgpu"]),
        *_vendor("vastai", "Vastai", "on", ["vastaitech.com/va"]),
        *_vendor("biren", "Biren", "on", ["birentech.com/gpu"]),
        *_vendor("ascend", "Ascend", "off", _ascend()),
        _other("devices.ascend.image", "", "Ascend"),
        _other("devices.ascend.imagePullPolicy", "IfNotPresent", "Ascend"),
        _other("devices.ascend.extraArgs", [], "Ascend"),
        _other("devices.ascend.nodeSelector", {"ascend": "on"}, "Ascend"),
        _other("devices.ascend.tolerations", [], "Ascend"),
        _other("devices.ascend.runtimeClassName", "", "Ascend"),
        _other("devices.ascend.hamiVnpuCore", False, "Ascend"),
        *_vendor("iluvatar", "Iluvatar", "off", _iluvatar()),
        translated(
            rules.CONTENT,
            "",
            "deviceConfig, section by section, and managedResources by the names in it",
            rules.device_config,
        ),
    )


def _mock_keys() -> tuple[HamiKey, ...]:
    return (
        not_honoured(
            "mockDevicePlugin.enabled",
            False,
            "it shows memory and cores among a node's allocatable resources, which no agent does",
        ),
        *(
            without_effect(
                f"mockDevicePlugin.image.{name}", default, "none of HAMi's images runs here"
            )
            for name, default in (
                ("registry", "docker.io"),
                ("repository", "projecthami/mock-device-plugin"),
                ("tag", "1.0.1"),
                ("pullPolicy", "IfNotPresent"),
                ("pullSecrets", []),
            )
        ),
    )


def _vendor(section: str, vendor: str, switch: str, resources: list[str]) -> tuple[HamiKey, ...]:
    """``switch``: the default of ``enabled``, ``on`` or ``off``; empty where there is none."""
    key = f"devices.{section}.enabled"
    off = f"there is no plugin for {vendor}, as if it were switched off"
    switches = {
        "on": [without_effect(key, default=True, because=off)],
        "off": [_other(key, False, vendor)],
        "": [],
    }
    return (*switches[switch], _other(f"devices.{section}.customresources", resources, vendor))


def _lines(prefix: str, words: str) -> list[str]:
    return [f"{prefix}{word}" for word in words.split()]


def _ascend() -> list[str]:
    chips = "910A 910B2 910B3 910B4 910B4-1 310P 910C"
    return [
        f"huawei.com/Ascend{chip}{amount}"
        for chip in chips.split()
        for amount in ("", "-memory", "-core")
    ]


def _iluvatar() -> list[str]:
    return [
        f"iluvatar.ai/{chip}{amount}"
        for chip in ("BI-V100", "BI-V150", "MR-V100", "MR-V50")
        for amount in ("-vgpu", ".vCore", ".vMem")
    ]
