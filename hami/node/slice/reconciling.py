"""Has the vendor take away what belongs to no slice, at the agent's start and again and again.

Nothing is enforced meanwhile (:mod:`hami.node.slice.preparing` waits): neither hook undoes what
the other one does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import structlog

from hami.domain.allocations import ContainerKind
from hami.domain.errors import HamiError
from hami.domain.slices import Slice
from hami.domain.units import PodUid
from hami.kube.pace import Backoff
from hami.node.slice.agent_context import AgentContext
from hami.node.slice.views import as_slice

RECONCILE_SECONDS = 60.0
RECONCILE_EVERY = 60.0
"""Seconds: a device that was busy with something of nobody's may be idle by then."""
FIRST_RETRY = 1.0
RECONCILE = "hami_reconcile"


async def reconcile(around: AgentContext, damaged: Sequence[str]) -> None:
    """Call ``hami_reconcile`` every minute until cancelled; sooner after a failure.

    The vendor is told of ``damaged`` slices too: their containers may run.
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
    """Call the hook once; what went wrong, or empty."""
    live = [as_slice(one, around.store.state_dir(one.id)) for one in around.slices]
    known = {slice.id for slice in live}
    live += [_unknown(id, around) for id in damaged if id not in known]
    try:
        await around.hooks.call(
            (RECONCILE,), RECONCILE_SECONDS, around.vendor.reconcile, live, around.config.now
        )
    except HamiError as error:
        return str(error)
    return ""


def _unknown(slice_id: str, around: AgentContext) -> Slice:
    """A slice whose record cannot be read: its id, vendor and directory."""
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
