"""PodDisruptionBudgets: how many pods may go, and the eviction that asks."""

from __future__ import annotations

from typing import Any

from hami.domain.kubernetes.selectors import holds, object_selector
from hami_lab.api.objects.refusals import Refusal
from hami_lab.api.objects.storage import Item, Record, Storage
from hami_lab.api.objects.times import now

Json = dict[str, Any]

_PODS = ("", "pods")
_BUDGETS = ("policy", "poddisruptionbudgets")


class Disruption:
    """Keeps every budget's status; answers whether a pod may be evicted."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        storage.on_change.append(self._react)

    def refuse(self, pod: Item, body: Json) -> None:
        """Whether the pod's budget lets it go; takes the disruption from the budget.

        Raises:
            Refusal: 429 where none is left, 500 where two budgets select the pod.
        """
        status = body.get("status") or {}
        if body["metadata"].get("deletionTimestamp") or status.get("phase") in (
            "Pending",
            "Succeeded",
            "Failed",
        ):
            return
        budgets = self._selecting(pod)
        if len(budgets) > 1:
            raise Refusal(
                500,
                "InternalError",
                "This pod has more than one PodDisruptionBudget, which the eviction subresource "
                "does not support.",
            )
        for budget in budgets:
            self._take(budget, healthy=_healthy(body))

    def _take(self, budget: Item, *, healthy: bool) -> None:
        found = budget.object()
        status = found["status"]
        policy = found["spec"].get("unhealthyPodEvictionPolicy")
        enough = status["currentHealthy"] >= status["desiredHealthy"] > 0
        if not healthy and (policy == "AlwaysAllow" or enough):
            return
        if status["disruptionsAllowed"] <= 0:
            raise Refusal(
                429,
                "TooManyRequests",
                "Cannot evict pod as it would violate the pod's disruption budget.",
                details={
                    "causes": [
                        {
                            "reason": "DisruptionBudget",
                            "message": f"The disruption budget {budget.key[1]} needs "
                            f"{status['desiredHealthy']} healthy pods and has "
                            f"{status['currentHealthy']} currently",
                        }
                    ]
                },
            )

    def _selecting(self, pod: Item) -> list[Item]:
        budgets = self._storage.collection(_BUDGETS)
        if not budgets.items:
            return []
        return [
            budget
            for budget in budgets.within(pod.key[0])
            if holds(_selector(budget.object()), pod.labels)
        ]

    def _react(self, storage: tuple[str, str], record: Record) -> None:
        if storage == _BUDGETS and record.type != "DELETED":
            self._publish(record.item)
        elif storage == _PODS:
            budgets = self._storage.collection(_BUDGETS)
            for budget in budgets.within(record.item.key[0]) if budgets.items else ():
                self._publish(budget)

    def _publish(self, budget: Item) -> None:
        body = budget.object()
        selector = _selector(body)
        pods = [
            pod.object()
            for pod in self._storage.collection(_PODS).within(budget.key[0])
            if holds(selector, pod.labels)
        ]
        expected = [p for p in pods if p["status"].get("phase") not in ("Succeeded", "Failed")]
        healthy = sum(map(_healthy, expected))
        desired = _desired(body.get("spec") or {}, len(expected))
        allowed = max(0, healthy - desired) if expected else 0
        status = {
            "observedGeneration": body["metadata"].get("generation", 0),
            "disruptionsAllowed": allowed,
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "expectedPods": len(expected),
        }
        was = {k: v for k, v in (body.get("status") or {}).items() if k != "conditions"}
        if was != status:
            status["conditions"] = [_condition(allowed > 0, status["observedGeneration"])]
            body["status"] = status
            self._storage.put(_BUDGETS, body)


def _selector(budget: Json) -> Any:
    return object_selector((budget.get("spec") or {}).get("selector"))


def _healthy(pod: Json) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    ready = any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)
    return ready and not pod["metadata"].get("deletionTimestamp")


def _desired(spec: Json, expected: int) -> int:
    """How many must stay healthy; a percentage is rounded up, as the controller does."""
    if (least := spec.get("minAvailable")) is not None:
        return _share(least, expected)
    return max(0, expected - _share(spec.get("maxUnavailable", 0), expected))


def _share(value: Any, of: int) -> int:
    if isinstance(value, str) and value.endswith("%"):
        return -(-int(value[:-1]) * of // 100)
    return int(value)


def _condition(allowed: bool, generation: int) -> Json:  # noqa: FBT001
    return {
        "type": "DisruptionAllowed",
        "status": "True" if allowed else "False",
        "observedGeneration": generation,
        "lastTransitionTime": now(),
        "reason": "SufficientPods" if allowed else "InsufficientPods",
        "message": "",
    }
