"""Who called what: a count that tests read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})


class Call(NamedTuple):
    """One sort of call; ``verb`` and ``resource`` in Kubernetes' words."""

    verb: str
    resource: str
    subresource: str
    status: int
    user_agent: str


class Calls:
    """How often each sort of call was answered; status 0: the connection was dropped."""

    def __init__(self) -> None:
        self._counted: Counter[Call] = Counter()

    def add(self, call: Call) -> None:
        self._counted[call] += 1

    def clear(self) -> None:
        self._counted.clear()

    def count(
        self,
        *,
        verb: str = "",
        resource: str = "",
        subresource: str | None = None,
        status: int | None = None,
        user_agent: str = "",
        writes: bool = False,
    ) -> int:
        """Calls that match everything given; ``user_agent`` is its beginning."""
        return sum(
            times
            for call, times in self._counted.items()
            if (not verb or call.verb == verb)
            and (not resource or call.resource == resource)
            and (subresource is None or call.subresource == subresource)
            and (status is None or call.status == status)
            and call.user_agent.startswith(user_agent)
            and (not writes or call.verb in WRITES)
        )

    def __iter__(self) -> Iterator[tuple[Call, int]]:
        return iter(sorted(self._counted.items()))
