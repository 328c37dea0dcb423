"""Pages of the read-only API's lists: sorted by name, turned into JSON in a thread."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

from fastapi import Query
from pydantic import BaseModel
from starlette.responses import Response

MOST = 1000
"""The most items on one page."""

Limit = Annotated[int, Query(ge=1, le=MOST, description="Items on a page.")]
After = Annotated[str, Query(alias="continue", description="From the page before.")]

Responses = dict[int | str, dict[str, Any]]


def not_known() -> Responses:
    return {404: {"description": "Nothing of that name is known."}}


async def page(names: Iterable[str], after: str, limit: int) -> Sequence[str]:
    """The first names after ``after``, sorted: up to ``limit``, and one more if there is one."""
    held = list(names)

    def first() -> list[str]:
        return heapq.nsmallest(limit + 1, (name for name in held if name > after))

    return await asyncio.to_thread(first)


async def as_json(model: BaseModel) -> Response:
    text = await asyncio.to_thread(model.model_dump_json, by_alias=True)
    return Response(text, media_type="application/json")
