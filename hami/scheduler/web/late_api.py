"""The read-only API, which is made when somebody calls it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from starlette.types import Receive, Scope, Send

from hami import __version__

if TYPE_CHECKING:
    from fastapi import APIRouter, FastAPI

PATHS = ("/api/{rest:path}", "/openapi.json")
"""What it answers, as Starlette's patterns."""


class LateApi:
    """An ASGI application that is made at its first call, in a thread.

    FastAPI and the models take a seventh of a second and 12 MiB, which no start should wait for.
    """

    def __init__(self, router: Callable[[], APIRouter]) -> None:
        self._router = router
        self._app: FastAPI | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._app is None:  # Two first calls may each make one: they are alike.
            self._app = await asyncio.to_thread(self._made)
        await self._app(scope, receive, send)

    def _made(self) -> FastAPI:
        from fastapi import FastAPI  # noqa: PLC0415 -- see the class

        app = FastAPI(
            title="hami scheduler",
            version=__version__,
            docs_url=None,
            redoc_url=None,
            redirect_slashes=False,
        )
        app.include_router(self._router())
        return app
