"""What a Binding carries: the allocation in HAMi's words, signed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import msgspec

from hami.domain.allocations import PodAllocation
from hami.domain.errors import HamiError
from hami.domain.kubernetes.objects import Pod
from hami.policy.pods.accounting import Account, account_of
from hami.policy.tables.cluster_table import ClusterTable
from hami.signing import Signer
from hami.wire import keys
from hami.wire.allocation import bind_annotations, decision_annotations, encode_allocation

FIRST_GENERATION = 1
LONGEST_LABEL = 63
"""Characters of a label's value; node names may be longer."""


class CannotBeWritten(HamiError):
    """A vendor's plugin does not put its own allocation into annotations, or cannot read it back.

    The plugin must be mended; the log names its distribution.
    """


def annotations_of(
    pod: Pod, allocation: PodAllocation, table: ClusterTable, now: datetime
) -> dict[str, str]:
    """Every annotation of the decision, unsigned.

    Raises:
        CannotBeWritten: a vendor's plugin failed.
    """
    return {
        **decision_annotations(allocation.node, now),
        **bind_annotations(now),
        **_granted_annotations(pod, allocation, table, now),
    }


def resize_annotations(
    pod: Pod, allocation: PodAllocation, table: ClusterTable, now: datetime
) -> dict[str, str]:
    """Every annotation of another allocation of a pod that runs, unsigned.

    Not the lists of what is to be allocated yet: agents strike out of them what they have served.

    Raises:
        CannotBeWritten: a vendor's plugin failed.
    """
    profiles = [table.vendors[grant.vendor].profile for grant in allocation.grants]
    served = {profile.pod_annotations.to_allocate for profile in profiles}
    written = _granted_annotations(pod, allocation, table, now)
    if keys.ALLOCATED_CORES_LIMIT in pod.annotations:
        written.setdefault(keys.ALLOCATED_CORES_LIMIT, "")  # None is left of them.
    return {key: text for key, text in written.items() if key not in served}


def _granted_annotations(
    pod: Pod, allocation: PodAllocation, table: ClusterTable, now: datetime
) -> dict[str, str]:
    """The grants, in the vendors' annotations.

    Raises:
        CannotBeWritten: a vendor's plugin failed.
    """
    vendors = table.vendors
    used = sorted({grant.vendor for grant in allocation.grants})
    written = encode_allocation(allocation, [vendors[key].profile for key in used])
    for key in used:
        devices = [state.device for state in table.device_states(allocation.node, key)]
        added = vendors[key].allocation_annotations(allocation, devices, pod, now)
        if added is None:
            raise CannotBeWritten(f"the plugin of vendor {key} failed to write its annotations")
        written |= added
    return written


@dataclass(frozen=True, slots=True, kw_only=True)
class Signed:
    """``annotations`` are what is added to the pod, ``pod`` is what it will be.

    ``account`` is what the pod will be charged, ``signature`` is empty without a key to sign with.
    """

    annotations: Mapping[str, str]
    pod: Pod
    account: Account
    signature: str


def signed(
    pod: Pod,
    allocation: PodAllocation,
    annotations: Mapping[str, str],
    table: ClusterTable,
    signer: Signer,
    generation: int = FIRST_GENERATION,
) -> Signed:
    """The annotations and their signature, over what whoever reads them will decode.

    ``generation`` is one more than the pod's last.

    Raises:
        CannotBeWritten: they cannot be read back whole, or say something else than was promised:
            the pod carries annotations of its own that only the scheduler may write.
    """
    bound = _bound(pod, allocation.node, annotations)
    account = account_of(bound, table.vendors)
    if account is None or account.problems:
        raise CannotBeWritten("; ".join(account.problems if account else ("nothing is asked",)))
    if account.allocation != allocation:
        raise CannotBeWritten(
            f"pod {pod.full_name} carries annotations that change what it is given on "
            f"{allocation.node}; remove those that its author set for the scheduler"
        )
    signature = signer.sign(pod.uid, account.allocation, generation)
    if signature:
        annotations = {**annotations, keys.ALLOCATION_SIGNATURE: signature}
        bound = _bound(pod, allocation.node, annotations)
    return Signed(annotations=annotations, pod=bound, account=account, signature=signature)


def label_of(node: str) -> dict[str, str]:
    """HAMi's monitor selects pods by it; a name too long for a label has none."""
    return {keys.NODE: node} if len(node) <= LONGEST_LABEL else {}


def _bound(pod: Pod, node: str, annotations: Mapping[str, str]) -> Pod:
    """The pod as it will be seen, bound to the node."""
    metadata = msgspec.structs.replace(pod.metadata, annotations={**pod.annotations, **annotations})
    spec = msgspec.structs.replace(pod.spec, node_name=node)
    return msgspec.structs.replace(pod, metadata=metadata, spec=spec)
