"""The order of nodes and of devices: policies, comma chains, weights, scores.

HAMi's rules with two repairs. A device's score counts the request; HAMi compares a model name with
a vendor's word and so never does. And only the values below decide between equals, so that results
do not depend on the order in which devices arrived.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hami.domain.devices import Device, DeviceState, Usage
from hami.domain.errors import shortened
from hami.domain.kubernetes.objects import Pod
from hami.domain.requests import DeviceRequest, Invalid
from hami.domain.scheduling import DevicePolicy, NodePolicy, SchedulingPolicy, ScoringWeights
from hami.domain.units import WHOLE_DEVICE
from hami.policy.profile.defaults import asked_memory
from hami.wire import keys

_ORDERS = ("binpack", "spread", "numa")

_LONGEST_WEIGHT = 9

DEVICE_POLICIES = (*_ORDERS, "mutex", "topology-aware")
"""The words of a device policy, alone or in a comma chain."""


def read_policy(pod: Pod, defaults: SchedulingPolicy) -> SchedulingPolicy | Invalid:
    """The defaults, overridden by the pod's own annotations."""
    annotations = pod.annotations
    node, device, weights = defaults.node, defaults.device, defaults.weights
    if (text := annotations.get(keys.NODE_POLICY)) is not None:
        node = node_policy(text)
    if (text := annotations.get(keys.DEVICE_POLICY)) is not None:
        device = device_policy(text)
    if (text := annotations.get(keys.SCORING_WEIGHTS)) is not None:
        read = scoring_weights(text)
        if isinstance(read, Invalid):
            return read
        weights = read
    return SchedulingPolicy(node=node, device=device, weights=weights)


def node_policy(text: str) -> NodePolicy:
    """``spread``, or binpack for anything else, as in HAMi."""
    return NodePolicy.SPREAD if text == "spread" else NodePolicy.BINPACK


def device_policy(text: str) -> DevicePolicy:
    """One word or a comma chain; an unknown word means spread, as in HAMi."""
    words = tuple(dict.fromkeys(word.strip() for word in text.split(",")))
    chained = "," in text
    if chained:
        chain = tuple(word for word in words if word in _ORDERS) or ("spread",)
    else:
        chain = words if words[0] in (*_ORDERS, "mutex") else ("spread",)
    return DevicePolicy(
        chain=chain,
        chained=chained,
        mutex="mutex" in words,
        topology_aware="topology-aware" in words,
    )


def scoring_weights(text: str) -> ScoringWeights | Invalid:
    """``slot=1,core=1,memory=3``: all three, whole numbers, not all of them 0."""

    def invalid(problem: str) -> Invalid:
        return Invalid(f'invalid {keys.SCORING_WEIGHTS} annotation "{shortened(text)}": {problem}')

    parts = text.split(",")
    if len(parts) != 3:
        return invalid("expected slot, core, and memory weights")
    weights: dict[str, int] = {}
    for part in parts:
        name, equals, number = (piece.strip() for piece in part.partition("="))
        if not equals:
            return invalid("expected key=value entries")
        name = shortened(name)
        if name in weights:
            return invalid(f'duplicate "{name}" weight')
        digits = number.removeprefix("-")
        if not (digits.isascii() and digits.isdigit()):
            return invalid(f'"{name}" weight must be an integer')
        if len(digits) > _LONGEST_WEIGHT:
            return invalid(f'"{name}" weight must have at most {_LONGEST_WEIGHT} digits')
        if number.startswith("-"):
            return invalid(f'"{name}" weight must not be negative')
        if name not in ("slot", "core", "memory"):
            return invalid(f'unknown weight "{name}"')
        weights[name] = int(number)
    if not any(weights.values()):
        return invalid("at least one weight must be positive")
    return ScoringWeights(**weights)


def node_score(used: Usage, total: Usage) -> float:
    """10 x the sum of the used shares, over all devices of the node, before the pod; 0 to 30.

    0 when the node has no slots, memory or cores at all, as in HAMi.
    """
    if not (total.slots and total.memory_mib and total.cores):
        return 0.0
    return 10.0 * (
        used.slots / total.slots + used.cores / total.cores + used.memory_mib / total.memory_mib
    )


def device_score(device: Device, used: Usage, weights: ScoringWeights) -> float:
    """10 x the weighted sum of the device's used shares; 0 when it lacks slots, memory or cores."""
    return _score(device, used.slots, used.memory_mib, used.cores, weights)


def _score(
    device: Device, slots: int, memory_mib: int, cores: int, weights: ScoringWeights
) -> float:
    if not (device.slots and device.memory_mib and device.cores):
        return 0.0
    return 10.0 * (
        weights.slot * slots / device.slots
        + weights.core * cores / device.cores
        + weights.memory * memory_mib / device.memory_mib
    )


def in_order(
    states: Sequence[DeviceState],
    request: DeviceRequest,
    policy: SchedulingPolicy,
    *,
    numa_bind: bool = False,
) -> list[DeviceState]:
    """The devices in the order of trying them, the best first.

    Among equals: the highest NUMA node, then the highest index, then the highest id.
    """
    chain = policy.device.chain
    if numa_bind and "numa" not in chain[:1]:
        chain = ("numa", *(word for word in chain if word != "numa"))
    # HAMi's one exception: plain binpack bound to a NUMA node starts at the lowest.
    plain_binpack = policy.device.chain == ("binpack",) and not policy.device.chained
    numa_sign = -1 if numa_bind and plain_binpack else 1

    cores = min(request.cores, WHOLE_DEVICE)

    def after(state: DeviceState) -> float:
        device, used = state.device, state.usage
        memory = used.memory_mib + asked_memory(request, device)
        return _score(device, used.slots + 1, memory, used.cores + cores, policy.weights)

    terms: dict[str, Callable[[DeviceState], float]] = {
        "binpack": after,
        "spread": lambda state: -after(state),
        "numa": lambda state: numa_sign * state.device.numa,
        "mutex": lambda state: -state.usage.slots,
    }
    first, *others = [terms[word] for word in chain]

    def rank(state: DeviceState) -> tuple[Any, ...]:
        device = state.device
        more = [term(state) for term in others]
        return (first(state), *more, device.numa, device.index, device.id)

    return sorted(states, key=rank, reverse=True)
