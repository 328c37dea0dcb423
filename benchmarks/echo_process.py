"""The measure of everything over HTTP: the service's own HTTP stack, and nothing behind it.

``python -m benchmarks.echo_process`` prints its URL and answers POST /echo with the request's
body until its standard input ends.
"""

from __future__ import annotations

import asyncio
import gc
import sys

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from hami.scheduler.binds import parse_bind
from hami.scheduler.server import Listener, serving


async def echo(request: Request) -> Response:
    return Response(await request.body(), media_type="application/json")


async def main() -> None:
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    app.add_route("/echo", echo, ["POST"])
    listener = Listener(name="echo", bind=parse_bind("127.0.0.1:0"), app=app)
    gc.collect()
    gc.freeze()
    async with serving([listener]) as servers:
        sys.stdout.write(servers.addresses["echo"] + "\n")
        sys.stdout.flush()
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
