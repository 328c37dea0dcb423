"""PodDisruptionBudgets: which pods had better not be evicted.

The API server enforces them at each eviction; planners read them so as to choose others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hami.domain.kubernetes.objects import Pod
from hami.domain.kubernetes.selectors import Selector, holds, object_selector
from hami.domain.units import PodUid
from hami.kube.resources import DisruptionBudget
from hami.policy.quota.elastic import Member


@dataclass(frozen=True, slots=True)
class _Budget:
    selector: Selector
    allowed: int
    counted: frozenset[str]
    """Pods that were evicted and are subtracted from ``allowed`` already."""


class BudgetIndex:
    """All budgets, as the informer shows them."""

    def __init__(self, pod: Callable[[PodUid], Pod | None]) -> None:
        self._pod = pod
        self._budgets: dict[str, dict[str, _Budget]] = {}

    def changed(self, new: DisruptionBudget, old: DisruptionBudget | None) -> None:  # noqa: ARG002 -- Handler's signature
        about, spec, status = new.metadata, new.spec, new.status
        if spec.selector is None:  # It selects nothing; an empty one selects every pod.
            self.gone(new)
            return
        self._budgets.setdefault(about.namespace, {})[about.name] = _Budget(
            object_selector(spec.selector),
            status.disruptions_allowed,
            frozenset(status.disrupted_pods or ()),
        )

    def gone(self, last: DisruptionBudget) -> None:
        self._budgets.get(last.metadata.namespace, {}).pop(last.metadata.name, None)

    def counting(self, member: Member) -> Mapping[str, int]:
        """The budgets that count a pod, and how many of theirs may go now."""
        budgets = self._budgets.get(member.namespace)
        pod = self._pod(member.uid) if budgets else None
        if not budgets or pod is None:
            return {}
        return {
            f"{member.namespace}/{name}": max(0, budget.allowed)
            for name, budget in budgets.items()
            if pod.name not in budget.counted and holds(budget.selector, pod.labels)
        }
