"""What changes in a container when its pod is created: HAMi's rules, in HAMi's order.

Setting a variable twice changes nothing, because the core merges ``env`` by name; HAMi appends
it again on every re-invocation of its webhook.
"""

from __future__ import annotations

from hami.domain.admission import Admission, Denied
from hami.domain.errors import shortened
from hami.domain.kubernetes import quantity
from hami.domain.kubernetes.objects import Container
from hami.domain.kubernetes.quantity import BadQuantity
from hami.domain.units import WHOLE_DEVICE
from hami_nvidia.schedule.profile import NvidiaProfile

PRIORITY_ENV = "CUDA_TASK_PRIORITY"
CORE_POLICY_ENV = "GPU_CORE_UTILIZATION_POLICY"
VISIBLE_DEVICES_ENV = "NVIDIA_VISIBLE_DEVICES"


def admit(profile: NvidiaProfile, container: Container) -> Admission | Denied:
    """The variables and limits to set on this container, or why its pod cannot be.

    A container that asks for devices but neither for compute nor for a part of the memory gets
    whole devices: its cores become 100.
    """
    names = profile.resources
    percentage = _percentage(names.memory_percentage, container)
    if isinstance(percentage, Denied):
        return percentage

    env: dict[str, str] = {}
    # Only a limit sets the priority, and it counts for a container without a device too.
    if names.priority and (text := container.limits.get(names.priority)) is not None:
        priority = quantity.whole_number(text)
        if isinstance(priority, BadQuantity):
            return Denied(f"invalid {names.priority} in container {container.name}: {priority}")
        env[PRIORITY_ENV] = str(priority)
    if profile.core_policy:
        env[CORE_POLICY_ENV] = profile.core_policy

    limits: dict[str, str] = {}
    parts = (names.cores, names.memory, names.memory_percentage)
    count = container.quantity(names.count)
    if count is not None and quantity.whole_number(count) == 0:
        # No device, whatever else it says: HAMi would leave every GPU visible to it.
        return Admission(env=env | _hidden(profile))
    asks = names.count in container.limits
    if not asks and profile.default_count and any(n in container.limits for n in parts if n):
        limits[names.count] = str(profile.default_count)
        asks = True
    if (
        (asks or names.count in container.requests)
        and names.cores
        and container.quantity(names.cores) is None
        and _whole_devices(percentage, container.quantity(names.memory))
    ):
        limits[names.cores] = str(WHOLE_DEVICE)
        asks = True

    if not asks:
        return Admission(env=env | _hidden(profile), limits=limits)
    return Admission(env=env, limits=limits, runtime_class=profile.runtime_class or None)


def _hidden(profile: NvidiaProfile) -> dict[str, str]:
    """For a container without devices: images that show every GPU by default show none."""
    return {VISIBLE_DEVICES_ENV: "none"} if profile.overwrite_env else {}


def _percentage(resource: str, container: Container) -> int | Denied | None:
    text = container.quantity(resource)
    if text is None:
        return None
    percentage = quantity.whole_number(text)
    if isinstance(percentage, BadQuantity) or percentage > 100:
        return Denied(
            f"invalid {resource} value {shortened(text)} in container {container.name}: "
            f"must be an integer between 0 and 100"
        )
    return percentage


def _whole_devices(percentage: int | None, memory: str | None) -> bool:
    """An explicit 0 % is no request for whole devices, though it gets all their memory."""
    return memory is None if percentage is None else percentage == 100
