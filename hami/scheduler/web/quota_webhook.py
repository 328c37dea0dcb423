"""The admission webhook of elastic quotas: whether an object may be written as it is.

The rules are :mod:`hami.policy.quota.elastic.objects.validation`. The quotas to compare with are
listed from the API server for each review, because an informer may not have seen the one that
somebody made a moment ago, and quotas are written rarely.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from types import MappingProxyType
from typing import TypeVar

import msgspec
import structlog

from hami.domain.kubernetes.objects import CompositeElasticQuota, ElasticQuota, QuotaTree
from hami.kube.client import KubeClient
from hami.kube.errors import NOT_FOUND, ApiError
from hami.kube.resources import (
    COMPOSITE_QUOTAS,
    ELASTIC_QUOTAS,
    QUOTA_TREES,
    HasMetadata,
    Resource,
)
from hami.policy.quota.elastic.objects.reading import (
    BORROW_ANNOTATION,
    LEND_ANNOTATION,
    PARENT_LABEL,
    WEIGHT_LABEL,
)
from hami.policy.quota.elastic.objects.validation import Operation, QuotaObject, validate
from hami.policy.quota.elastic.units import Units
from hami.scheduler.web.reviews import (
    ReviewedKind,
    ReviewMetrics,
    ReviewRequest,
    outcome_of,
    read_question,
)
from hami.wire.admission import AdmissionReview, allow, deny
from hami.wire.bodies import BadBody, decode_body

T = TypeVar("T", bound=HasMetadata)

PATHS = (
    "/validate-nos-nebuly-com-v1alpha1-elasticquota",
    "/validate-nos-nebuly-com-v1alpha1-compositeelasticquota",
    "/validate-quota-hami-io-v1alpha1-quotatree",
)
"""The first two are nos'; each answers for all three kinds."""

_TYPES: MappingProxyType[ReviewedKind, type[QuotaObject]] = MappingProxyType(
    {
        ReviewedKind("nos.nebuly.com", "ElasticQuota"): ElasticQuota,
        ReviewedKind("nos.nebuly.com", "CompositeElasticQuota"): CompositeElasticQuota,
        ReviewedKind("quota.hami.io", "QuotaTree"): QuotaTree,
    }
)


class QuotaWebhook:
    """``others`` gives every quota object there is, ``units`` what resource names mean now."""

    def __init__(
        self,
        *,
        others: Callable[[], Awaitable[Sequence[QuotaObject]]],
        units: Callable[[], Units],
        metrics: ReviewMetrics,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._others = others
        self._units = units
        self._metrics = metrics
        self._clock = clock

    async def review(self, body: bytes) -> AdmissionReview | BadBody:
        """The answer to the API server; a body that is no review has none."""
        started = self._clock()
        outcome = "error"
        try:
            answer = await self._answer(body)
            outcome = outcome_of(answer)
            return answer
        finally:
            self._metrics.reviewed(self._clock() - started, outcome)

    async def _answer(self, body: bytes) -> AdmissionReview | BadBody:
        question = read_question(body)
        if isinstance(question, BadBody):
            return question
        review, request = question
        type = _TYPES.get(request.kind)
        if type is None or request.sub_resource or request.operation not in ("CREATE", "UPDATE"):
            return allow(review)
        quota = decode_body(bytes(request.object), type)
        if isinstance(quota, BadBody):
            text = f"the {request.kind.kind} cannot be read: {quota.problem}"
            return deny(review, text, code=400, reason="BadRequest")
        if _says_nothing_new(request, type, quota):
            return allow(review)
        try:
            others = await self._others()
        except ApiError as error:
            # nos' words; the reason is for whoever runs the scheduler.
            text = f"internal error: the quotas cannot be listed: {error}"
            return deny(review, text, code=500, reason="InternalError")
        quota = _in_namespace(quota, request.namespace)
        operation: Operation = "CREATE" if request.operation == "CREATE" else "UPDATE"
        found = validate(quota, operation, others, self._units())
        if not found.refusals:
            return allow(review, warnings=found.warnings)
        structlog.get_logger().info(
            "a quota was denied",
            kind=request.kind.kind,
            namespace=request.namespace,
            name=quota.name,
            reasons=found.refusals,
            dry_run=bool(request.dry_run),
        )
        return deny(review, "; ".join(found.refusals))


def _says_nothing_new(request: ReviewRequest, type: type[QuotaObject], quota: QuotaObject) -> bool:
    """It is on its way out, or only something beside the quota changes.

    Otherwise an object from before the webhook could not lose its finalizers, and our own
    annotations could not be written on it.
    """
    if quota.metadata.deletion_timestamp:
        return True
    if request.operation != "UPDATE":
        return False
    before = decode_body(bytes(request.old_object), type)
    return not isinstance(before, BadBody) and _meant(before) == _meant(quota)


def _meant(quota: QuotaObject) -> tuple[object, ...]:
    labels, annotations = quota.metadata.labels or {}, quota.metadata.annotations or {}
    return (
        quota.spec,
        *(labels.get(key) for key in (PARENT_LABEL, WEIGHT_LABEL)),
        *(annotations.get(key) for key in (BORROW_ANNOTATION, LEND_ANNOTATION)),
    )


def _in_namespace(quota: QuotaObject, namespace: str) -> QuotaObject:
    """The object where it will be: the request names the namespace, its text may not."""
    if not namespace or quota.metadata.namespace == namespace:
        return quota
    metadata = msgspec.structs.replace(quota.metadata, namespace=namespace)
    return msgspec.structs.replace(quota, metadata=metadata)


class ListedQuotas:
    """Every quota object, as the API server has them at this moment."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def __call__(self) -> Sequence[QuotaObject]:
        """Of all three kinds; none of a kind that is not defined in this cluster.

        Raises:
            ApiError: the API server refused, or did not answer.
        """
        return [
            *await self._list(ELASTIC_QUOTAS),
            *await self._list(COMPOSITE_QUOTAS),
            *await self._list(QUOTA_TREES),
        ]

    async def _list(self, resource: Resource[T]) -> list[T]:
        try:
            return await self._client.list(resource)
        except ApiError as error:
            if error.status == NOT_FOUND:
                return []
            raise
