"""The pods of one quota by priority: the least important are found without a look at all."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

from hami.policy.quota.elastic.model import Member

Key = TypeVar("Key", bound=tuple[object, ...])


def place_of(key: Key, keys: Sequence[Key]) -> int:
    """Where it belongs among those, which are in order; a new pod is the newest as a rule."""
    return len(keys) if not keys or keys[-1] < key else bisect_left(keys, key)


class Ranks(Generic[Key]):
    """``Key`` is the order inside a priority; every pod's is its own."""

    def __init__(self) -> None:
        self._ranks: dict[int, tuple[list[Key], list[Member]]] = {}

    def add(self, key: Key, member: Member) -> None:
        rank = self._ranks.get(member.priority)
        if rank is None:
            rank = self._ranks[member.priority] = ([], [])
        keys, members = rank
        at = place_of(key, keys)
        keys.insert(at, key)
        members.insert(at, member)

    def remove(self, key: Key, member: Member) -> None:
        keys, members = self._ranks[member.priority]
        at = bisect_left(keys, key)
        del keys[at], members[at]
        if not keys:
            del self._ranks[member.priority]

    def lowest_first(self, since: Key | None = None, below: int | None = None) -> Iterator[Member]:
        """By priority, and inside it the last first; pods may come and go while this is read.

        ``since``: none with a lesser key; ``below``: lower priorities than this alone.
        """
        for priority in sorted(self._ranks):
            if below is not None and priority >= below:
                return
            keys, members = self._ranks.get(priority, ([], []))
            yield from reversed(members[bisect_left(keys, since) if since is not None else 0 :])
