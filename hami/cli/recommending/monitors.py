"""Asks the nodes' monitors, many at the same time; one that does not answer hides no other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

import aiohttp
import msgspec

from hami.cli.commands.api_client import is_address
from hami.domain.errors import ConfigError, shortened
from hami.domain.kubernetes.objects import Pod
from hami.kube.client import KubeClient
from hami.kube.errors import ApiError
from hami.kube.resources import PODS
from hami.monitor.node_api import NODE_DECODER, NodeShape

PATH = "/api/v1/node"
AT_ONCE = 16
PATIENCE = 15.0
"""Seconds for one node's answer."""
MOST_BYTES = 64 << 20
"""Of one node's answer; 10 000 slices take 20 MB."""

Asked = Callable[[], Awaitable[bytes]]


class NoAnswer(Exception):
    """A monitor did not say what runs on its node; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitorPods:
    """Which pods are monitors."""

    namespace: str
    selector: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Silent:
    """A node that nothing is known of."""

    who: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """What all monitors said. ``pods`` by UID, None where no API server was asked for them."""

    nodes: Sequence[NodeShape]
    silent: Sequence[Silent] = ()
    pods: dict[str, Pod] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Monitor:
    """``who`` is for messages. ``node`` is the only one that it may speak of, if that is known."""

    who: str
    ask: Asked
    node: str = ""


async def ask_urls(urls: Sequence[str]) -> Heard:
    """Ask monitors by their addresses, ``http://HOST:PORT``.

    Raises:
        ConfigError: a text is no address, or none of them answers.
    """
    for url in urls:
        if not is_address(url) or "@" in url:
            raise ConfigError(f"--monitor {url!r} is no address; write http://HOST:PORT")
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=PATIENCE))
        )

        def asker(url: str) -> Asked:
            return lambda: _get(session, f"{url.rstrip('/')}{PATH}")

        return await _ask_all([_Monitor(who=url, ask=asker(url)) for url in urls])


async def ask_cluster(client: KubeClient, monitors: MonitorPods, namespace: str) -> Heard:
    """Ask every monitor's pod through the API server, and the pods of ``namespace``, "" for all.

    Raises:
        ConfigError: no pod is a monitor, or none of them answers.
        ApiError: pods cannot be listed.
    """
    found = await client.list(PODS, namespace=monitors.namespace, label_selector=monitors.selector)
    found = [pod for pod in found if not pod.finished]
    if not found:
        raise ConfigError(
            f"no pod of namespace {monitors.namespace} has the labels {monitors.selector}: name "
            "the monitors' with --monitor-namespace and --monitor-selector, or their addresses "
            "with --monitor"
        )

    def asker(pod: Pod) -> Asked:
        return lambda: client.ask_pod(
            pod.namespace, pod.name, port=monitors.port, path=PATH,
            most=MOST_BYTES, timeout=PATIENCE,
        )  # fmt: skip

    pods = await client.list(PODS, namespace=namespace)
    heard = await _ask_all(
        [
            _Monitor(
                who=f"{pod.spec.node_name or 'no node'} (pod {pod.full_name})",
                ask=asker(pod),
                node=pod.spec.node_name,
            )
            for pod in found
        ]
    )
    return Heard(nodes=heard.nodes, silent=heard.silent, pods={pod.uid: pod for pod in pods})


async def _ask_all(monitors: Sequence[_Monitor]) -> Heard:
    """Raises: ConfigError: none of them answers."""
    places = asyncio.Semaphore(AT_ONCE)

    async def asked(monitor: _Monitor) -> NodeShape | Silent:
        async with places:
            try:
                return _read(monitor, await monitor.ask())
            except (NoAnswer, ApiError) as error:
                return Silent(who=monitor.who, why=str(error))

    answers = await asyncio.gather(*map(asked, monitors))
    silent = [answer for answer in answers if isinstance(answer, Silent)]
    nodes = [answer for answer in answers if isinstance(answer, NodeShape)]
    if not nodes:
        raise ConfigError(
            f"none of {len(silent)} monitors answers; {silent[0].who}: {silent[0].why}"
        )
    return Heard(nodes=nodes, silent=silent)


def _read(monitor: _Monitor, body: bytes) -> NodeShape:
    try:
        shape = NODE_DECODER.decode(body)
    except (msgspec.DecodeError, UnicodeError) as error:
        text = f"no answer of a hami monitor of this version: {shortened(str(error), 200)}"
        raise NoAnswer(text) from error
    if monitor.node and shape.node != monitor.node:
        raise NoAnswer(f"it speaks of node {shortened(shape.node)}, on which it does not run")
    return shape


async def _get(session: aiohttp.ClientSession, url: str) -> bytes:
    try:
        async with session.get(url, allow_redirects=False) as answer:
            if answer.status != 200:
                raise NoAnswer(f"HTTP {answer.status} {answer.reason}")
            parts, size = [], 0
            async for part in answer.content.iter_any():
                parts.append(part)
                size += len(part)
                if size > MOST_BYTES:
                    raise NoAnswer(f"the answer is longer than {MOST_BYTES} bytes")
            return b"".join(parts)
    except TimeoutError as error:
        raise NoAnswer(f"no answer within {PATIENCE:g} s") from error
    except (aiohttp.ClientError, OSError) as error:
        raise NoAnswer(str(error) or type(error).__name__) from error
