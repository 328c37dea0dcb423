"""The book as it would be: changes that are taken back, whatever happens in between."""

from __future__ import annotations

from types import TracebackType

from hami.domain.units import PodUid
from hami.policy.quota.elastic.book.accounts import Accounts
from hami.policy.quota.elastic.model import Member


class Trial:
    """Inside ``with book.trial() as trial`` the book answers with these changes made."""

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts
        self._before: list[tuple[PodUid, Member | None]] = []

    def __enter__(self) -> Trial:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for uid, member in reversed(self._before):
            if member is None:
                self._accounts.remove(uid)
            else:
                self._accounts.place(member)
        self._before.clear()

    def put(self, member: Member) -> None:
        """As if this pod held what it says."""
        self._before.append((member.uid, self._accounts.members.get(member.uid)))
        self._accounts.place(member)

    def drop(self, uid: PodUid) -> None:
        """As if this pod were gone."""
        member = self._accounts.remove(uid)
        if member is not None:
            self._before.append((uid, member))
