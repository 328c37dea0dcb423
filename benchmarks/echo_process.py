"""The yardstick for everything over HTTP: the service's HTTP stack with next to nothing behind it.

``python -m benchmarks.echo_process`` prints its URL and answers until its standard input ends. POST
/echo reads the extender's arguments and writes them back, which is the least that an extender in
Python can do. POST /bytes sends back the body unread.
"""

from __future__ import annotations

import asyncio
import gc
import sys

import msgspec
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from hami.http.addresses import parse_bind
from hami.scheduler.web.server import Listener, serving

JSON = "application/json"


class Arguments(msgspec.Struct, rename="pascal"):
    pod: msgspec.Raw
    nodes: msgspec.Raw
    node_names: list[str]


async def echo(request: Request) -> Response:
    arguments = msgspec.json.decode(await request.body(), type=Arguments)
    return Response(msgspec.json.encode(arguments), media_type=JSON)


async def unread(request: Request) -> Response:
    return Response(await request.body(), media_type=JSON)


async def main() -> None:
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    app.add_route("/echo", echo, ["POST"])
    app.add_route("/bytes", unread, ["POST"])
    listener = Listener(name="echo", bind=parse_bind("127.0.0.1:0"), app=app)
    gc.collect()
    gc.freeze()
    async with serving([listener]) as servers:
        sys.stdout.write(servers.addresses["echo"] + "\n")
        sys.stdout.flush()
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
