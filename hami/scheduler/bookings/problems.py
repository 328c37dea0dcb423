"""What is wrong with an object, told to its owner once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hami.domain.kubernetes.objects import Node, Pod, ResourceQuota
from hami.scheduler.bookings.quotas.elastic_objects import QuotaObject

Subject = Pod | Node | ResourceQuota | QuotaObject


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong with an object, for its owner: becomes a log line and an event."""

    about: Subject
    reason: str
    text: str


class Problems:
    """Tells each problem once, until it changes."""

    def __init__(self, report: Callable[[Problem], None]) -> None:
        self._report = report
        self._told: dict[tuple[str, str], tuple[str, ...]] = {}

    def tell(
        self, about: Subject, key: tuple[str, str], reason: str, problems: tuple[str, ...]
    ) -> None:
        """``problems``: everything that is wrong with it now."""
        if self._told.get(key, ()) == problems:
            return
        self._told[key] = problems
        for text in problems:
            self._report(Problem(about, reason, text))

    def forget(self, key: tuple[str, str]) -> None:
        self._told.pop(key, None)
