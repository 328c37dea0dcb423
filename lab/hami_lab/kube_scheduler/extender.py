"""One extender as kube-scheduler calls it: filter with node names, and bind in its place."""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar

import aiohttp
import msgspec

from hami.domain.errors import HamiError
from hami.domain.kubernetes.objects import Pod
from hami.wire.bodies import NULL, BadBody, decode_body
from hami.wire.extender import (
    ExtenderArgs,
    ExtenderBindingArgs,
    ExtenderBindingResult,
    ExtenderFilterResult,
)
from hami_lab.live import PodDocument

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagedResource:
    """``ignored``: NodeResourcesFit does not look at it (``ignoredByScheduler``)."""

    name: str
    ignored: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtenderSettings:
    """An entry of ``extenders`` in a KubeSchedulerConfiguration with ``nodeCacheCapable: true``.

    Without ``managed`` resources every pod is its business; ``ignorable``: a pod is scheduled
    without it when it does not answer. ``timeout`` is in seconds. An empty verb is not called.
    """

    url: str
    filter_verb: str = "filter"
    bind_verb: str = "bind"
    managed: tuple[ManagedResource, ...] = ()
    timeout: float = 30.0
    ignorable: bool = False
    tls: ssl.SSLContext | None = None

    def concerns(self, pod: Pod) -> bool:
        if not self.managed:
            return True
        names = {resource.name for resource in self.managed}
        return any(
            not names.isdisjoint(c.limits) or not names.isdisjoint(c.requests)
            for c, _ in pod.each_container()
        )

    @property
    def binds(self) -> bool:
        return bool(self.bind_verb)


class ExtenderFailed(HamiError):
    """It did not answer, or answered with an error; the scheduling attempt fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Which nodes it keeps, and why not the others."""

    kept: Sequence[str]
    refused: Mapping[str, str]


class Extender:
    """A client with one keep-alive connection at a time, as kube-scheduler's."""

    def __init__(self, settings: ExtenderSettings) -> None:
        self.settings = settings
        timeout = aiohttp.ClientTimeout(total=settings.timeout)
        self._session = aiohttp.ClientSession(
            timeout=timeout, headers={"Content-Type": "application/json"}
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._session.close()

    async def filter(self, pod: PodDocument, nodes: Sequence[str]) -> Verdict:
        """Which of these nodes may take the pod.

        Raises:
            ExtenderFailed: no answer, or one with an error.
        """
        args = ExtenderArgs(
            pod=msgspec.Raw(msgspec.json.encode(pod)), nodes=NULL, node_names=list(nodes)
        )
        answer = await self._post(self.settings.filter_verb, args, ExtenderFilterResult)
        if answer.error:
            raise ExtenderFailed(answer.error)
        refused = {
            **(answer.failed_nodes or {}),
            **(answer.failed_and_unresolvable_nodes or {}),
        }
        kept = list(answer.node_names or ())
        offered = set(nodes)
        unknown = [name for name in kept if name not in offered]
        if unknown:
            raise ExtenderFailed(
                f"extender {self.settings.url} claims a filtered node {unknown[0]} which is not "
                f"found in the input node list"
            )
        return Verdict(kept=kept, refused=refused)

    async def bind(self, pod: Pod, node: str) -> None:
        """Let it bind the pod.

        Raises:
            ExtenderFailed: no answer, or one with an error.
        """
        args = ExtenderBindingArgs(
            pod_name=pod.name, pod_namespace=pod.namespace, pod_uid=pod.uid, node=node
        )
        answer = await self._post(self.settings.bind_verb, args, ExtenderBindingResult)
        if answer.error:
            raise ExtenderFailed(answer.error)

    async def _post(self, verb: str, body: Any, answer: type[T]) -> T:
        url = f"{self.settings.url.rstrip('/')}/{verb}"
        # None would mean certificates as usual, too, but only aiohttp's True says so to its types.
        tls: ssl.SSLContext | bool = self.settings.tls or True
        try:
            async with self._session.post(url, data=msgspec.json.encode(body), ssl=tls) as reply:
                content = await reply.read()
                if reply.status != 200:
                    raise ExtenderFailed(
                        f"failed {verb} with extender at URL {url}, code {reply.status}"
                    )
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            said = str(error) or type(error).__name__
            raise ExtenderFailed(f'Post "{url}": {said}') from error
        decoded = decode_body(content, answer)
        if isinstance(decoded, BadBody):
            raise ExtenderFailed(f"extender {url}: {decoded}")
        return decoded
