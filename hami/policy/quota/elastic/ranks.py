"""The pods of one quota by priority: the least important are found without a look at all."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Generic, TypeVar

from hami.policy.quota.elastic.model import Member

Key = TypeVar("Key", bound=tuple[object, ...])


class Ranks(Generic[Key]):
    """``Key`` is the order inside a priority; every pod's is its own."""

    def __init__(self) -> None:
        self._ranks: dict[int, tuple[list[Key], list[Member]]] = {}

    def add(self, key: Key, member: Member) -> None:
        keys, members = self._ranks.setdefault(member.priority, ([], []))
        at = bisect_left(keys, key)
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
