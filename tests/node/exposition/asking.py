"""Asks an agent of a :class:`World` over its socket."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from http import HTTPStatus

from prometheus_client.parser import text_string_to_metric_families

Samples = dict[tuple[str, ...], float]
"""By name and the values of the labels."""


async def ask(world, path: str) -> tuple[int, str]:
    """Status and body."""
    reader, writer = await asyncio.open_unix_connection(str(world.health))
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nhost: it\r\nconnection: close\r\n\r\n".encode())
        head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
    return int(head.split()[1]), body


async def ready(world) -> bool:
    return (await ask(world, "/readyz"))[0] == HTTPStatus.OK


async def unready_with(world, words: str) -> bool:
    status, body = await ask(world, "/readyz")
    return status == HTTPStatus.SERVICE_UNAVAILABLE and words in body


async def metrics(world) -> Samples:
    status, text = await ask(world, "/metrics")
    assert status == HTTPStatus.OK
    return read(text)


def read(text: str) -> Samples:
    return {
        (one.name, *one.labels.values()): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }
