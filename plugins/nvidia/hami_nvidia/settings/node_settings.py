"""The settings of one node: the section ``nvidia:``, flags and variables, and the node's entries.

What is more particular wins: an entry of the per-node configuration that names this node (the
later of two), then a flag, then a variable, then the section, then the default. A flag and a
variable reach us as keys of the section.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, cast

from pydantic import BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.dataclasses import dataclass

from hami.domain.errors import ConfigError, shortened
from hami.domain.slices import Identity
from hami.hookspecs import PluginConfig
from hami_nvidia.settings.config import SECTION, MigAllowlistEntry
from hami_nvidia.settings.options import NODE_OPTIONS

Mode = Literal["hami-core", "mig"]
MigStrategy = Literal["none", "single", "mixed"]
ListStrategy = Literal["envvar", "volume-mounts", "cdi-annotations", "cdi-cri"]

_UNSET = MappingProxyType(
    {
        "operatingmode": "",
        "migstrategy": "",
        "libcudaloglevel": "",
        "devicesplitcount": 0,
        "devicememoryscaling": 0,
        "devicecorescaling": 0,
    }
)
"""Keys of an entry for which HAMi's zero value can only mean that nobody set it."""


def _path(value: object) -> object:
    """A path as a text is read; it must be absolute and plain, for it ends up in containers."""
    if not isinstance(value, str):
        return value
    if not value.startswith("/") or ".." in value.split("/"):
        raise ValueError("the path must be absolute, without '..'")
    return Path(value)


def _optional_path(value: object) -> object:
    return None if value == "" else _path(value)


def _text(value: object) -> object:
    """YAML reads ``1`` as a number; HAMi's chart writes ``libCudaLogLevel: 1``."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _items(value: object) -> object:
    """A list, or a text of items separated by commas."""
    if isinstance(value, str):
        value = [item.strip() for item in value.split(",") if item.strip()]
    return tuple(value) if isinstance(value, list) else value


def _channels(value: object) -> object:
    """HAMi serves the one channel 0 or none."""
    items = _items(value)
    if not isinstance(items, tuple):
        return value
    if any(str(item) != "0" for item in items) or len(items) > 1:
        raise ValueError("must be [] or [0]")
    return tuple(int(item) for item in items)


def _strategies(value: object) -> object:
    items = _items(value)
    if items == ():
        raise ValueError("names no strategy")
    return items


def _found(value: object) -> object:
    if value == "tegra":
        raise ValueError("Tegra has no NVML and is not supported; write auto or nvml")
    return value


def _reserve(value: object) -> object:
    """MiB, or ``auto``; a flag brings either as a text."""
    if value in ("auto", ""):
        return None
    if isinstance(value, str):
        if not value.isascii() or not value.isdigit():
            raise ValueError("write a whole number of MiB, or auto")
        return int(value)
    return value


def _set(value: object) -> object:
    return frozenset(value) if isinstance(value, list) else value


_Path = Annotated[Path, BeforeValidator(_path)]
_OptionalPath = Annotated[Path | None, BeforeValidator(_optional_path)]
_Scale = Annotated[float, Field(gt=0, le=100)]
_Reserve = Annotated[Annotated[int, Field(ge=0, le=1 << 24)] | None, BeforeValidator(_reserve)]
_CDI_KIND = r"^[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?/[A-Za-z0-9]([A-Za-z0-9_-]*[A-Za-z0-9])?$"


@dataclass(
    frozen=True,
    slots=True,
    kw_only=True,
    config=ConfigDict(strict=True, extra="ignore", populate_by_name=True, allow_inf_nan=False),
)
class NodeSettings:
    """What this node's configuration says, every value checked. Memory in MiB, times in seconds.

    Each field is also a key, by its alias; a key that is no field is for somebody else.
    ``context_reserve_mib`` is None where it follows from the GPU.
    """

    node_name: str = Field("", validation_alias="node.name")
    identity: Identity = Field("kubelet", validation_alias="node.identity")

    # Devices.
    split_count: int = Field(10, validation_alias="deviceSplitCount", ge=1, le=1024)
    memory_scaling: _Scale = Field(1.0, validation_alias="deviceMemoryScaling")
    core_scaling: _Scale = Field(1.0, validation_alias="deviceCoreScaling")
    preconfigured_memory_mib: int = Field(
        0, validation_alias="preConfiguredDeviceMemory", ge=0, le=1 << 24
    )
    mode: Mode = Field("hami-core", validation_alias="operatingMode")
    mig_strategy: MigStrategy = Field("none", validation_alias="migStrategy")
    mig_allowlist: Annotated[tuple[MigAllowlistEntry, ...], BeforeValidator(_items)] = Field(
        (), validation_alias="migProfileAllowlist"
    )
    filter_uuids: Annotated[frozenset[str], BeforeValidator(_set)] = Field(
        frozenset(), validation_alias="filterDevices.uuid"
    )
    filter_indexes: Annotated[frozenset[int], BeforeValidator(_set)] = Field(
        frozenset(), validation_alias="filterDevices.index"
    )
    numa_topology: bool = Field(default=False, validation_alias="enableNumaTopology")
    topology_score: bool = Field(default=True, validation_alias="enableTopologyScore")
    discovery: Annotated[Literal["auto", "nvml"], BeforeValidator(_found)] = Field(
        "auto", validation_alias="deviceDiscoveryStrategy"
    )
    fail_on_init_error: bool = Field(default=True, validation_alias="failOnInitError")

    # Health.
    disable_health_checks: Annotated[str, BeforeValidator(_text)] = Field(
        "", validation_alias="disableHealthChecks"
    )
    enable_health_checks: Annotated[str, BeforeValidator(_text)] = Field(
        "", validation_alias="enableHealthChecks"
    )
    health_recovery: float = Field(300.0, validation_alias="healthRecovery", ge=0)

    # Containers.
    log_level: Annotated[str, BeforeValidator(_text)] = Field(
        "1", validation_alias="libCudaLogLevel"
    )
    core_policy: Literal["", "default", "force", "disable"] = Field(
        "", validation_alias="gpuCorePolicy"
    )
    disable_core_limit: bool = Field(default=False, validation_alias="disableCoreLimit")
    context_reserve_mib: _Reserve = Field(None, validation_alias="contextReserveMiB")
    list_strategies: Annotated[tuple[ListStrategy, ...], BeforeValidator(_strategies)] = Field(
        ("envvar",), validation_alias="deviceListStrategy"
    )
    id_strategy: Literal["uuid", "index"] = Field("uuid", validation_alias="deviceIDStrategy")
    pass_device_specs: bool = Field(default=False, validation_alias="passDeviceSpecs")
    gdrcopy: bool = Field(default=False, validation_alias="gdrcopyEnabled")
    gds: bool = Field(default=False, validation_alias="gdsEnabled")
    mofed: bool = Field(default=False, validation_alias="mofedEnabled")
    imex_channels: Annotated[tuple[int, ...], BeforeValidator(_channels)] = Field(
        (), validation_alias="imexChannelIDs"
    )
    imex_required: bool = Field(default=False, validation_alias="imexRequired")
    cdi_annotation_prefix: str = Field(
        "cdi.k8s.io/", validation_alias="cdiAnnotationPrefix", pattern=r"^[a-z0-9.-]+/$"
    )
    cdi_kind: str = Field("nvidia.com/gpu", validation_alias="cdiKind", pattern=_CDI_KIND)
    cdi_hook: _OptionalPath = Field(None, validation_alias="nvidiaCDIHookPath")

    # Paths of the node. ``container_driver_root`` is where the agent sees ``driver_root``; the last
    # ones, which have no option, are where it sees everything else.
    driver_root: _Path = Field(Path("/"), validation_alias="nvidiaDriverRoot")
    configured_dev_root: _OptionalPath = Field(None, validation_alias="nvidiaDevRoot")
    container_driver_root: _Path = Field(
        Path("/driver-root"), validation_alias="containerDriverRoot"
    )
    hook_path: _Path = Field(Path("/usr/local"), validation_alias="hookPath")
    library: _OptionalPath = Field(None, validation_alias="library")
    lock_dir: _Path = Field(Path("/tmp/vgpulock"), validation_alias="lockDir")  # noqa: S108 HAMi's
    agent_root: _Path = Field(Path("/"), validation_alias="agentRoot")
    sys_root: _Path = Field(Path("/sys"), validation_alias="sysRoot")
    proc_root: _Path = Field(Path("/proc"), validation_alias="procRoot")
    cdi_dirs: Annotated[tuple[_Path, ...], BeforeValidator(_items)] = Field(
        (Path("/etc/cdi"), Path("/var/run/cdi")), validation_alias="node.cdi_read_dirs"
    )
    cdi_dir: _Path = Field(Path("/var/run/cdi"), validation_alias="node.cdi_dir")

    @property
    def library_dir(self) -> Path:
        """Where HAMi keeps the library and its preload file on a node."""
        return self.hook_path / "vgpu"


_KEYS = MappingProxyType(
    {
        str(found.validation_alias).lower(): str(found.validation_alias)
        for found in cast("Any", NodeSettings).__pydantic_fields__.values()
    }
)
"""How a key is spelled, by its spelling in lower case: HAMi's file is read without regard to it."""

_OF_THE_NODE = ("name", "identity", "cdi_dir", "cdi_read_dirs")
"""What the agent itself says of the node, below ``node``."""

_FLAGS = MappingProxyType({option.key: option.flags for option in NODE_OPTIONS if option.flags})


def node_settings(config: PluginConfig) -> NodeSettings:
    """The settings of the node that ``config["node"]`` names.

    Raises:
        ConfigError: a value cannot be used; names the place, the key and the value.
    """
    section = _section(config.get(SECTION), SECTION)
    values = {key: value for key, value in section.items() if value is not None}
    origins = {key: f"device configuration: {SECTION}.{key}" for key in values}
    node = _section(config.get("node"), "node")
    for key in _OF_THE_NODE:
        if node.get(key) is not None:
            values[f"node.{key}"] = node[key]
    for entry in _entries(config.get("nodeconfig")):
        name = entry.get("name") or entry.get("selector") or "?"
        for key, value in _overrides(entry).items():
            values[key] = value
            origins[key] = f"node configuration, entry {shortened(str(name))!r}: {key}"
    try:
        return NodeSettings(**{key: values[key] for key in values if key in _KEYS.values()})
    except ValidationError as error:
        raise ConfigError(_told(error, origins)) from error


def _section(value: object, name: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ConfigError(
            f"device configuration: {name}: {shortened(repr(value))} is not a section; write keys "
            f"and values below it or remove it"
        )
    return value


def _entries(value: object) -> Sequence[Mapping[str, Any]]:
    entries = value if isinstance(value, Sequence) and not isinstance(value, str) else ()
    for entry in entries:
        if not isinstance(entry, Mapping):
            raise ConfigError(
                f"node configuration: {shortened(repr(entry))} is not an entry; write an object "
                f"with a name and the keys to change"
            )
    return entries


def _overrides(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """The keys that an entry changes, in our spelling.

    HAMi ignores every zero value of an entry. Here ``false`` and a memory of 0 are taken at their
    word: a node can turn off what is on everywhere else. A count or scale of 0 and an empty text
    cannot be meant and change nothing, as in HAMi; nor does an empty filter.
    """
    changed: dict[str, Any] = {}
    for written, value in entry.items():
        key = str(written).lower()
        if value is None or (key in _UNSET and value == _UNSET[key]):
            continue
        if key == "filterdevices":
            changed |= _filter(value)
        elif key in _KEYS:
            changed[_KEYS[key]] = value
    return changed


def _filter(value: object) -> Mapping[str, Any]:
    """The whole filter is replaced, as soon as one of its lists names a device."""
    if not isinstance(value, Mapping):
        return {"filterDevices.uuid": value}
    lists = {str(key).lower(): items for key, items in value.items() if items}
    if not lists.keys() & {"uuid", "index"}:
        return {}
    return {
        "filterDevices.uuid": lists.get("uuid", []),
        "filterDevices.index": lists.get("index", []),
    }


def _told(error: ValidationError, origins: Mapping[str, str]) -> str:
    problems = []
    for detail in error.errors():
        key = str(detail["loc"][0]) if detail["loc"] else SECTION
        where = origins.get(key, key)
        if flags := _FLAGS.get(key):
            where += f" ({flags[0]})"
        message = detail["msg"].removeprefix("Value error, ")
        problems.append(f"{where}: {shortened(repr(detail['input']))}: {message}")
    return f"{'; '.join(problems)}; correct it, or remove the key for its default"
