"""What every node hook works with: the node's settings, NVML, and somebody to tell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock

from hami_nvidia.devices.places import Places, places
from hami_nvidia.handover.limits import ContextReserves
from hami_nvidia.mig.instances import Instances
from hami_nvidia.mig.made_instances import MadeInstances
from hami_nvidia.nvml.interface import Nvml
from hami_nvidia.settings.node_settings import NodeSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """``report`` takes what a person should know and nobody must act upon at once.

    ``instances``, ``made`` and ``contexts`` remember; they live as long as ``nvml``.
    ``writing_specs`` is held by whoever writes CDI specs.
    """

    settings: NodeSettings
    nvml: Nvml
    instances: Instances
    made: MadeInstances
    contexts: ContextReserves
    report: Callable[[str], None]
    writing_specs: Lock = field(default_factory=Lock)

    def places(self) -> Places:
        """Where every device is now.

        Raises:
            NvmlAway: there is no driver to ask.
        """
        return places(self.nvml, self.settings)
