"""Quota of single models of device: keys such as ``nvidia.com/gpumem@A100``.

What a pod is charged of them is known once its devices are: of which model they are, their node
says. Where no quota has such a key, nothing is asked and nothing is worked out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from hami.domain.allocations import ContainerAllocation
from hami.domain.devices import Grant
from hami.domain.profile import VendorProfile
from hami.domain.units import VendorKey
from hami.policy.quota.elastic.model import Amounts, Leaf, TreeNode
from hami.policy.quota.elastic.units import TYPED
from hami.policy.quota.elastic.vector import typed_charge

ModelOf = Callable[[str, Grant], str | None]
"""By node and grant; None for a device that the node does not have, or not now."""


def unknown(_node: str, _grant: Grant) -> None:
    """Where nobody knows of devices, no model is charged."""


class ModelKeys:
    """The keys that quotas have now."""

    def __init__(self, profiles: Mapping[VendorKey, VendorProfile], model_of: ModelOf) -> None:
        self._profiles = profiles
        self._model_of = model_of
        self.keys: tuple[str, ...] = ()

    def read(self, leaves: Iterable[Leaf], nodes: Iterable[TreeNode]) -> bool:
        """Whether they are others than before."""
        before = self.keys
        amounts: list[Amounts | None] = []
        for leaf in leaves:
            amounts += leaf.min, leaf.max
        for node in nodes:
            amounts += node.own, node.max
        self.keys = tuple(sorted({key for each in amounts for key in each or () if TYPED in key}))
        return self.keys != before

    def charged(self, containers: Sequence[ContainerAllocation], node: str) -> Amounts | None:
        """Of each key; None while it is not known of which model some device is."""
        models: dict[tuple[str, str], str] = {}
        for container in containers:
            for grant in container.grants:
                model = self._model_of(node, grant)
                if model is None:
                    return None
                models[grant.vendor, grant.device_id] = model
        return typed_charge(
            containers,
            self._profiles,
            self.keys,
            lambda grant: models[grant.vendor, grant.device_id],
        )

    def kept(self, vector: Amounts) -> Amounts:
        """What a pod was charged of them before."""
        return {key: vector[key] for key in self.keys if key in vector}
