"""The API's router, of which nothing is imported before it is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from hami.domain.units import PodUid
from hami.policy.quota.elastic.plans.plan import NoPlan
from hami.scheduler.bookings.state import ClusterState

if TYPE_CHECKING:
    from fastapi import APIRouter


def read_only_api(
    state: ClusterState,
    *,
    leading: Callable[[], bool],
    unplanned: Callable[[], Mapping[PodUid, NoPlan]],
) -> Callable[[], APIRouter]:
    """Makes the API's router."""

    def router() -> APIRouter:
        from hami.scheduler.readonly.api import api_router  # noqa: PLC0415 -- no start waits for it

        return api_router(state, leading=leading, unplanned=unplanned)

    return router
