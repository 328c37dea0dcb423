"""Allocate and its companions where identity comes from kubelet's checkpoint."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence

from hami.domain.slices import ContainerEdits
from hami.node.start.pre_start import Starts

SLICE_ID_BYTES = 12
_NUMBER = re.compile(r"\d+")


class KubeletCalls:
    """Knows nothing when it answers Allocate, and needs to know nothing.

    The answer carries a fresh slice id as the name of a CDI device. kubelet writes it down beside
    pod and container, and nothing defines that device before PreStartContainer does.
    """

    def __init__(self, kind: str, hidden: Mapping[str, str], starts: Starts) -> None:
        self._kind = kind
        self._hidden = hidden
        self._starts = starts

    async def allocate(self, requests: Sequence[tuple[str, ...]]) -> Sequence[ContainerEdits]:
        return [self._answer(frozenset(ids)) for ids in requests]

    async def prefer(
        self, available: Sequence[str], must_include: Sequence[str], size: int
    ) -> Sequence[str]:
        """Tokens are alike: the lowest numbers, so that those of a node stay together."""
        chosen = list(dict.fromkeys(must_include))
        free = sorted(set(available) - set(chosen), key=_by_number)
        return [*chosen, *free[: max(0, size - len(chosen))]]

    async def prepare(self, ids: frozenset[str]) -> None:
        await self._starts.start(ids)

    def _answer(self, ids: frozenset[str]) -> ContainerEdits:
        slice_id = secrets.token_hex(SLICE_ID_BYTES)
        self._starts.issue(ids, slice_id)
        return ContainerEdits(env=dict(self._hidden), cdi_devices=(f"{self._kind}={slice_id}",))


def _by_number(token: str) -> tuple[int, str]:
    numbers = _NUMBER.findall(token)
    return (int(numbers[-1]) if numbers else 0), token
