"""The vendor's hooks that change the node: in an order that lets none undo another's work.

``hami_reconcile`` takes away what belongs to no slice, so nothing is enforced meanwhile; and a
hook cannot be interrupted, so what is late is waited for before the same slice is touched again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import structlog

from hami.domain.allocations import ContainerKind
from hami.domain.errors import HamiError
from hami.domain.slices import ContainerEdits, Slice
from hami.domain.units import PodUid
from hami.kube.pace import Backoff
from hami.node.slice.agent_context import AgentContext
from hami.node.slice.live_slices import as_slice

ENFORCE_SECONDS = 20.0
"""The contract's limit for ``hami_enforce``."""
RECONCILE_SECONDS = 60.0
RECONCILE_EVERY = 60.0
"""Seconds: a device that was busy with something of nobody's may be idle by then."""
FIRST_RETRY = 1.0
ENFORCE, RECONCILE = "hami_enforce", "hami_reconcile"


async def enforced(slice: Slice, generation: int, around: AgentContext) -> ContainerEdits:
    """The edits of this slice.

    Raises:
        VendorFailed: the vendor cannot do it.
        TooLate: it takes too long and goes on, or something else of it does.
    """
    hooks = around.hooks
    await hooks.over(ENFORCE_SECONDS, RECONCILE)
    key = (ENFORCE, slice.id, generation)
    if not hooks.under_way(*key):
        # One of another generation would be answered with that one's edits.
        await hooks.over(ENFORCE_SECONDS, ENFORCE, slice.id)
    return await hooks.call(key, ENFORCE_SECONDS, around.vendor.enforce, slice, around.config())


async def reconcile(around: AgentContext, damaged: Sequence[str]) -> None:
    """Again and again, until cancelled; sooner after a failure.

    ``damaged`` slices are named too: their containers may run, though nobody knows with what.
    """
    log = structlog.get_logger("hami.reconciling")
    backoff = Backoff(first=FIRST_RETRY, most=300.0)
    while True:
        problem = await _reconciled(around, damaged)
        delay = backoff.delay() if problem else RECONCILE_EVERY
        if problem:
            log.error("what belongs to no slice was not undone", why=problem, again_in=round(delay))
        else:
            backoff.reset()
        await asyncio.sleep(delay)


async def _reconciled(around: AgentContext, damaged: Sequence[str]) -> str:
    """What went wrong; empty when nothing did."""
    live = [as_slice(one, around.store.state_dir(one.id)) for one in around.slices]
    known = {slice.id for slice in live}
    live += [_unknown(id, around) for id in damaged if id not in known]
    try:
        await around.hooks.call(
            (RECONCILE,), RECONCILE_SECONDS, around.vendor.reconcile, live, around.config()
        )
    except HamiError as error:
        return str(error)
    return ""


def _unknown(slice_id: str, around: AgentContext) -> Slice:
    """As much as is known of one whose record cannot be read."""
    return Slice(
        id=slice_id,
        vendor=around.vendor.profile.key,
        pod_uid=PodUid(""),
        namespace="",
        pod="",
        container="",
        kind=ContainerKind.APP,
        grants=(),
        state_dir=around.store.state_dir(slice_id),
    )
