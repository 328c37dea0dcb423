"""``--policy``: how nodes and devices are chosen when a pod does not say so."""

from __future__ import annotations

from hami.domain.errors import ConfigError
from hami.domain.scheduling import NodePolicy, SchedulingPolicy
from hami.policy.fit.rank import DEVICE_POLICIES, device_policy

NODE_POLICIES = tuple(policy.value for policy in NodePolicy)


def read_policy(text: str | None) -> SchedulingPolicy:
    """``binpack/spread``: the policy for nodes, then for devices (a comma chain too).

    ``binpack`` or ``spread`` alone counts for both. None means the defaults.

    Raises:
        ConfigError: a word is no policy; the message lists those that are.
    """
    if text is None:
        return SchedulingPolicy()
    node, slash, device = text.partition("/")
    device = device if slash else node
    words = [word.strip() for word in device.split(",")]
    for word, known in ((node, NODE_POLICIES), *((word, DEVICE_POLICIES) for word in words)):
        if word not in known:
            raise ConfigError(
                f"--policy {text}: {word!r} is no policy; write NODE/DEVICE, for example "
                f"binpack/spread: NODE is {' or '.join(NODE_POLICIES)}, DEVICE one or several "
                f"(with commas) of {', '.join(DEVICE_POLICIES)}"
            )
    return SchedulingPolicy(node=NodePolicy(node), device=device_policy(device))
