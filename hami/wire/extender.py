"""kube-scheduler's extender protocol, ``k8s.io/kube-scheduler/extender/v1``.

Those Go types (staging/src/k8s.io/kube-scheduler/extender/v1/types.go) have no JSON tags, so keys
are spelled like Go's fields. Objects that only some callers need stay undecoded JSON; ``NULL``
means that the caller did not send them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from hami.domain.kubernetes.objects import Pod
from hami.wire.bodies import NULL


class _Extender(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """Base of the structs below: immutable, Go's spelling of keys."""


class ExtenderArgs(_Extender, frozen=True):
    """``POST /filter``.

    kube-scheduler sends ``node_names`` with ``nodeCacheCapable``, else ``nodes``. ``pod`` is a Pod
    and ``nodes`` a NodeList, both undecoded.
    """

    pod: msgspec.Raw = NULL
    nodes: msgspec.Raw = NULL
    node_names: Sequence[str] | None = None

    @property
    def has_pod(self) -> bool:
        return bytes(self.pod) != b"null"

    @property
    def has_nodes(self) -> bool:
        return bytes(self.nodes) != b"null"


class UndecodedArgs(_Extender, frozen=True):
    """:class:`ExtenderArgs` with the names undecoded: thousands need not become strings."""

    pod: msgspec.Raw = NULL
    nodes: msgspec.Raw = NULL
    node_names: msgspec.Raw = NULL


class ExtenderFilterResult(_Extender, frozen=True):
    """The answer to ``/filter``; all five keys are always written, ``null`` for what is empty.

    ``nodes`` is a NodeList for a caller that sent one. The two maps give each refused node's
    reason; on those in ``failed_and_unresolvable_nodes`` preemption cannot help. When ``error`` has
    a text, kube-scheduler ignores the rest.
    """

    nodes: msgspec.Raw = NULL
    node_names: Sequence[str] | None = None
    failed_nodes: Mapping[str, str] | None = None
    failed_and_unresolvable_nodes: Mapping[str, str] | None = None
    error: str = ""

    def __post_init__(self) -> None:
        for field in ("node_names", "failed_nodes", "failed_and_unresolvable_nodes"):
            if not getattr(self, field):
                msgspec.structs.force_setattr(self, field, None)


class ExtenderBindingArgs(_Extender, frozen=True):
    """``POST /bind``: bind this pod to this node."""

    pod_name: str = ""
    pod_namespace: str = ""
    pod_uid: str = msgspec.field(name="PodUID", default="")
    node: str = ""


class ExtenderBindingResult(_Extender, frozen=True):
    """The answer to ``/bind``; an empty ``error`` means bound."""

    error: str = ""


class MetaPod(_Extender, frozen=True):
    """A victim, known by its uid alone."""

    uid: str = msgspec.field(name="UID", default="")


class MetaVictims(_Extender, frozen=True):
    """Pods that would be evicted from one node, and how many disruption budgets that breaks."""

    pods: Sequence[MetaPod] | None = None
    num_pdb_violations: int = msgspec.field(name="NumPDBViolations", default=0)


class Victims(_Extender, frozen=True):
    """:class:`MetaVictims` with whole pods."""

    pods: Sequence[Pod] | None = None
    num_pdb_violations: int = msgspec.field(name="NumPDBViolations", default=0)


class ExtenderPreemptionArgs(_Extender, frozen=True):
    """``POST /preempt``: one of the maps, by ``nodeCacheCapable`` as in :class:`ExtenderArgs`."""

    pod: msgspec.Raw = NULL
    node_name_to_victims: Mapping[str, Victims] | None = None
    node_name_to_meta_victims: Mapping[str, MetaVictims] | None = None


class ExtenderPreemptionResult(_Extender, frozen=True):
    """The nodes where preemption may go on, each with its victims; a node left out is vetoed."""

    node_name_to_meta_victims: Mapping[str, MetaVictims] | None = None
