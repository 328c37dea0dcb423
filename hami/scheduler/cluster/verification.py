"""Verifies signatures beside the loop: 40 to 110 µs each, and a start sees tens of thousands."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from hami.scheduler.bookings.charges import Unjudged
from hami.scheduler.bookings.state import ClusterState
from hami.signing import Signer, Verdict

PORTION = 64
"""Signatures verified before the loop is told."""
AT_ONCE = 2
"""Threads: OpenSSL works without the interpreter's lock."""


async def verify_signatures(state: ClusterState, signer: Callable[[], Signer]) -> None:
    """Until cancelled."""
    while True:
        await state.bound.to_judge.wait()
        state.bound.to_judge.clear()
        waiting = list(state.bound.unjudged.values())
        portions = iter([waiting[n : n + PORTION] for n in range(0, len(waiting), PORTION)])
        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(_judge(state, signer, portions))


async def _judge(
    state: ClusterState, signer: Callable[[], Signer], portions: Iterator[list[Unjudged]]
) -> None:
    for portion in portions:
        verdicts = await asyncio.to_thread(_verify, signer(), portion)
        for about, verdict in zip(portion, verdicts, strict=True):
            state.bound.judged(about, verdict)


def _verify(signer: Signer, portion: list[Unjudged]) -> list[Verdict]:
    return signer.verify_many((a.uid, a.account.allocation, a.text) for a in portion)
