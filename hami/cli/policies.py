"""``--policy``: how nodes and devices are chosen when a pod does not say."""

from __future__ import annotations

from hami.domain.errors import ConfigError
from hami.domain.scheduling import DevicePolicy, NodePolicy, SchedulingPolicy

CHOICES = ("binpack", "spread")


def read_policy(text: str | None) -> SchedulingPolicy:
    """``binpack/spread``: nodes, then devices. One word counts for both; None: the defaults.

    Raises:
        ConfigError: a word is not one of :data:`CHOICES`.
    """
    if text is None:
        return SchedulingPolicy()
    node, slash, device = text.partition("/")
    device = device if slash else node
    for word in (node, device):
        if word not in CHOICES:
            choices = " or ".join(CHOICES)
            raise ConfigError(
                f"--policy {text}: {word!r} is no policy; write NODE/DEVICE, each {choices}, "
                f"for example binpack/spread"
            )
    return SchedulingPolicy(node=NodePolicy(node), device=DevicePolicy(chain=(device,)))
