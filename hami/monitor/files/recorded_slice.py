"""A slice as the vendors' hooks get it, from its record alone."""

from __future__ import annotations

from pathlib import Path

from hami.domain.allocations import ContainerKind
from hami.domain.devices import Grant
from hami.domain.slices import Slice
from hami.policy.pods.accounting import account_of
from hami.policy.ports import VendorRegistry
from hami.slices.record import SliceRecord


def recorded_slice(record: SliceRecord, path: Path, vendors: VendorRegistry) -> Slice:
    """``path`` is the slice's directory.

    The grants are read from the recorded pod's allocation, which says what a vendor has added to
    them, such as a MIG instance. Where that cannot be read, the record's own copy has the rest.
    """
    kind, grants = _granted(record, vendors) or (ContainerKind.APP, _copied(record))
    return Slice(
        id=record.slice_id,
        vendor=record.vendor,
        pod_uid=record.pod.uid,
        namespace=record.pod.namespace,
        pod=record.pod.name,
        container=record.container,
        kind=kind,
        grants=grants,
        state_dir=path,
        identity=record.identity,
    )


def _granted(
    record: SliceRecord, vendors: VendorRegistry
) -> tuple[ContainerKind, tuple[Grant, ...]] | None:
    account = account_of(record.pod, vendors)
    if account is None or account.problems:
        return None
    for held in account.allocation.containers:
        grants = tuple(grant for grant in held.grants if grant.vendor == record.vendor)
        if held.name == record.container and grants:
            return held.kind, grants
    return None


def _copied(record: SliceRecord) -> tuple[Grant, ...]:
    return tuple(
        Grant(
            device_id=grant.device_id,
            vendor=record.vendor,
            memory_mib=grant.memory_mib,
            cores=grant.cores,
        )
        for grant in record.grants
    )
