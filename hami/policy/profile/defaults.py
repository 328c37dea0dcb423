"""What a vendor does when it implements nothing: every hook's default, driven by its profile.

A function that is marked as a hook is the default of the hook of its name; ``hami_fit`` alone has
its own elsewhere (``hami.policy.fit.exact.place``). Plugins call these too, to change one thing
about a hook and keep the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

from hami.domain.admission import Admission
from hami.domain.allocations import ContainerKind, PodAllocation
from hami.domain.devices import Device, DeviceState, Grant
from hami.domain.errors import Malformed
from hami.domain.kubernetes import quantity
from hami.domain.kubernetes.objects import Container, Node, Pod
from hami.domain.kubernetes.quantity import BadQuantity
from hami.domain.measurements import Measurement
from hami.domain.options import NodeOption
from hami.domain.profile import VendorProfile
from hami.domain.requests import DeviceRequest, FitContext, Invalid
from hami.domain.slices import ContainerEdits, HealthChange
from hami.domain.units import WHOLE_DEVICE, CorePercent, MemoryMiB
from hami.hookspecs import hookimpl
from hami.wire import codecs


@hookimpl
def node_devices(profile: VendorProfile, node: Node) -> Sequence[Device] | Malformed:
    """Decode the register annotation; a node without it has no device of this vendor."""
    key = profile.node_annotations.register
    text = node.annotations.get(key)
    if text is None:
        return ()
    decode = (
        codecs.decode_register_csv
        if profile.register_codec == "csv"
        else codecs.decode_register_json
    )
    return decode(text, annotation=key, vendor=profile.key)


@hookimpl
def node_annotations(profile: VendorProfile, devices: Sequence[Device]) -> Mapping[str, str]:
    """Encode the devices in the register annotation, in the profile's codec."""
    encode = (
        codecs.encode_register_csv
        if profile.register_codec == "csv"
        else codecs.encode_register_json
    )
    return MappingProxyType({profile.node_annotations.register: encode(devices)})


@hookimpl
def admit(profile: VendorProfile, container: Container, pod: Pod, kind: ContainerKind) -> Admission:
    """Add ``default_count`` when only memory or cores are asked; set the runtime class."""
    names = profile.resources
    counted = names.count in container.limits
    implied = (
        not counted
        and profile.default_count > 0
        and any(n in container.limits for n in names.all_names if n != names.priority)
    )
    if not counted and not implied:
        return Admission()
    return Admission(
        limits={names.count: str(profile.default_count)} if implied else {},
        runtime_class=profile.runtime_class or None,
    )


def asks(profile: VendorProfile, container: Container) -> bool:
    """Whether :func:`parse_request` finds a request, readable or not."""
    text = _text(profile, container, profile.resources.count)
    return text is not None and quantity.whole_number(text) != 0


@hookimpl
def parse_request(
    profile: VendorProfile, container: Container, pod: Pod
) -> DeviceRequest | Invalid | None:
    """Read count, memory, percentage and cores under the profile's names and units."""
    names = profile.resources
    count = _read(profile, container, names.count, quantity.whole_number)
    if not count:
        return None
    read = partial(_read, profile, container)
    memory = read(names.memory, partial(quantity.requested_memory, factor=profile.memory_factor))
    percent = read(names.memory_percentage, quantity.whole_number)
    cores = read(names.cores, quantity.whole_number)
    for value in (count, memory, percent, cores):
        if isinstance(value, Invalid):
            return value
    return _request(profile, container, count, memory, percent, cores)


def _read(
    profile: VendorProfile,
    container: Container,
    resource: str,
    parse: Callable[[str], int | BadQuantity],
) -> Any:
    """The number for a resource, None without one, or Invalid."""
    text = _text(profile, container, resource)
    if text is None:
        return None
    number = parse(text)
    return _invalid(container, resource, number) if isinstance(number, BadQuantity) else number


def _text(profile: VendorProfile, container: Container, resource: str) -> str | None:
    only_limits = profile.request_source == "limits"
    return container.limits.get(resource) if only_limits else container.quantity(resource)


def _invalid(container: Container, resource: str, problem: object) -> Invalid:
    return Invalid(f"container {container.name}: {resource}: {problem}")


def _request(
    profile: VendorProfile,
    container: Container,
    count: int,
    memory: int | None,
    percent: int | None,
    cores: int | None,
) -> DeviceRequest | Invalid:
    names = profile.resources
    if count > profile.max_count:
        return _invalid(
            container, names.count, f"{count} is more than the {profile.max_count} allowed"
        )
    if profile.whole_device:
        return DeviceRequest(
            vendor=profile.key, count=count, memory_percent=100, cores=WHOLE_DEVICE, exclusive=True
        )
    if cores is None:
        cores = profile.default_cores
    elif cores > WHOLE_DEVICE and profile.cores_excess == "refuse":
        return _invalid(container, names.cores, f"{cores} is outside 0 to 100 percent of a device")
    # 0 means the same as nothing, and MiB win over a percentage, as HAMi's users know it.
    memory = memory or (0 if percent else profile.default_memory_mib)
    return DeviceRequest(
        vendor=profile.key,
        count=count,
        memory_mib=MemoryMiB(memory) if memory else None,
        memory_percent=None if memory else min(percent or 100, 100),
        cores=CorePercent(cores),
    )


def asked_memory(request: DeviceRequest, device: Device) -> MemoryMiB:
    """What one slice of the request means on this device: MiB, a percentage rounded down."""
    if request.memory_mib is not None:
        return request.memory_mib
    percent = 100 if request.memory_percent is None else request.memory_percent
    return MemoryMiB(device.memory_mib * percent // 100)


@hookimpl
def charge(
    profile: VendorProfile, request: DeviceRequest, state: DeviceState, ctx: FitContext
) -> Grant:
    """Charge memory as asked and cores up to 100; all of the device for an exclusive request."""
    device = state.device
    if request.exclusive:
        memory, cores = device.memory_mib, device.cores
    else:
        memory = asked_memory(request, device)
        cores = min(request.cores, WHOLE_DEVICE)
    return Grant(device_id=device.id, vendor=profile.key, memory_mib=memory, cores=cores)


@hookimpl
def accept() -> None:
    """Accept every device that passed the other checks."""


@hookimpl
def choose() -> None:
    """Leave the choice to the core: the first devices that quota allows."""


@hookimpl
def score() -> float:
    """Add nothing. The core does not ask a vendor without a ``hami_score`` of its own."""
    return 0.0


@hookimpl
def allocation_annotations() -> Mapping[str, str]:
    """Write nothing beside the core's lists of devices."""
    return {}


@hookimpl
def restore(allocation: PodAllocation) -> PodAllocation:
    """Keep what the core's lists of devices say."""
    return allocation


@hookimpl
def node_options() -> Sequence[NodeOption]:
    """Take no options."""
    return ()


@hookimpl
def static_devices() -> Mapping[str, Sequence[Device]]:
    """Let kubelet hand out no devices by itself."""
    return {}


@hookimpl
def static_edits() -> ContainerEdits:
    """Add nothing to the container."""
    return ContainerEdits()


@hookimpl
def release() -> None:
    """Undo nothing."""


@hookimpl
def reconcile() -> None:
    """Undo nothing."""


@hookimpl
def check_health() -> Sequence[HealthChange]:
    """Report no change."""
    return ()


@hookimpl
def measure() -> Measurement:
    """Measure nothing."""
    return Measurement()
