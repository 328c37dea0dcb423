"""Which pods name which PodGroup, and how many of a group's pods must run together."""

from __future__ import annotations

from collections.abc import Collection

from hami.domain.kubernetes.objects import Pod, PodGroup
from hami.domain.units import PodUid
from hami.policy.filter.decision import Refused
from hami.policy.filter.gangs import GroupName, group_of


class Groups:
    """By name, for the pods that are there; an object without pods, or the reverse, is no fault."""

    def __init__(self) -> None:
        self._members: dict[GroupName, dict[PodUid, None]] = {}
        self._of: dict[PodUid, GroupName] = {}
        self._least: dict[GroupName, int] = {}
        self._refusals: dict[GroupName, tuple[object, Refused]] = {}

    def seen(self, pod: Pod) -> None:
        """A pod, or its change."""
        name = group_of(pod)
        if self._of.get(pod.uid) == name:
            return
        self.gone(pod.uid)
        if name is not None:
            self._of[pod.uid] = name
            self._members.setdefault(name, {})[pod.uid] = None
            self._refusals.pop(name, None)

    def gone(self, uid: PodUid) -> None:
        """Idempotent."""
        if (name := self._of.pop(uid, None)) is None:
            return
        self._refusals.pop(name, None)
        members = self._members[name]
        del members[uid]
        if not members:
            del self._members[name]

    def gang_of(self, uid: PodUid) -> GroupName | None:
        """The group of a pod that does not run alone; None also where a group asks for no more."""
        name = self._of.get(uid)
        return None if name is None or self._least.get(name, 2) < 2 else name

    def siblings(self, uid: PodUid) -> Collection[PodUid]:
        """Who runs together with this pod, itself among them; nobody of one that runs alone."""
        gang = self.gang_of(uid)
        return () if gang is None else self.members(gang)

    def members(self, name: GroupName) -> Collection[PodUid]:
        """Every pod that names it, whatever has become of it."""
        return self._members.get(name, {}).keys()

    def least(self, name: GroupName) -> int | None:
        """How many of its pods run together or not at all; None when nobody has said."""
        return self._least.get(name)

    # What each was refused last.

    def remember(self, name: GroupName, moment: object, refused: Refused) -> None:
        """``moment``: all that the refusal depends on."""
        self._refusals[name] = moment, refused

    def forget(self, name: GroupName) -> None:
        """What it was refused says nothing any more."""
        self._refusals.pop(name, None)

    def remembered(self, name: GroupName, moment: object) -> Refused | None:
        """What it was refused, if it would be again."""
        known = self._refusals.get(name)
        return known[1] if known is not None and known[0] == moment else None

    # The objects.

    def group_changed(self, api: str, group: PodGroup) -> None:
        name = _name_of(api, group)
        if (least := group.min_count) is None:
            self._least.pop(name, None)
        else:
            self._least[name] = least

    def group_gone(self, api: str, group: PodGroup) -> None:
        self._least.pop(_name_of(api, group), None)


def _name_of(api: str, group: PodGroup) -> GroupName:
    return GroupName(api, group.metadata.namespace or "default", group.metadata.name)
