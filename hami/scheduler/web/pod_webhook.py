"""The admission webhook: an AdmissionReview in, an AdmissionReview out.

What happens to a pod is decided by :mod:`hami.policy.pods.admission`, and when an ephemeral
container is added to it by :mod:`hami.policy.pods.ephemeral`; here are the envelope, the patch and
the words of a refusal. There are no side effects, so a dry run needs nothing of its own. Whatever a
user wrote is answered by a denial with a text; only a bug raises.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import assert_never

import msgspec
import structlog

from hami.domain.admission import Denied
from hami.domain.kubernetes.objects import Pod
from hami.policy.pods.admission import AdmissionSettings, Admitted, NotOurs, admit
from hami.policy.pods.ephemeral import admit_ephemeral
from hami.policy.ports import VendorRegistry
from hami.policy.quota import QuotaLedger
from hami.scheduler.web.reviews import ReviewMetrics, ReviewRequest, outcome_of, read_question
from hami.wire.admission import AdmissionReview, allow, deny
from hami.wire.bodies import BadBody, decode_body
from hami.wire.json_patch import json_patch

MOST_CONTAINERS = 1000
"""Of one pod, init containers included. Each is shown to every vendor, on the service's loop, by
whoever reaches the port; the API server stores 1.5 MiB per pod, which ends earlier as a rule."""


class _Containers(msgspec.Struct, frozen=True, rename="camel"):
    """The lists undecoded item by item: a million empty containers fit into 4 MiB."""

    containers: list[msgspec.Raw] | None = None
    init_containers: list[msgspec.Raw] | None = None
    ephemeral_containers: list[msgspec.Raw] | None = None


class _Counted(msgspec.Struct, frozen=True):
    """A pod of which only the containers are counted."""

    spec: _Containers = _Containers()

    @property
    def containers(self) -> int:
        spec = self.spec
        lists = (spec.containers, spec.init_containers, spec.ephemeral_containers)
        return sum(len(found or ()) for found in lists)


class Webhook:
    """``vendors``, ``ledger`` and ``settings`` give the present ones, whatever was reloaded."""

    def __init__(
        self,
        *,
        vendors: Callable[[], VendorRegistry],
        ledger: Callable[[], QuotaLedger],
        settings: Callable[[], AdmissionSettings],
        metrics: ReviewMetrics,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._vendors = vendors
        self._ledger = ledger
        self._settings = settings
        self._metrics = metrics
        self._clock = clock

    def review(self, body: bytes) -> AdmissionReview | BadBody:
        """The answer to the API server; a body that is no review has none."""
        started = self._clock()
        outcome = "error"
        try:
            answer = self._answer(body)
            outcome = outcome_of(answer)
            return answer
        finally:
            self._metrics.reviewed(self._clock() - started, outcome)

    def _answer(self, body: bytes) -> AdmissionReview | BadBody:
        question = read_question(body)
        if isinstance(question, BadBody):
            return question
        review, request = question
        if not request.creates_a_pod and not request.adds_to_a_pod:
            return allow(review)
        pod = _read(review, request.object)
        if not isinstance(pod, Pod):
            return pod
        placed = _in_namespace(pod, request.namespace)
        decision = self._decide(request, placed)
        match decision:
            case Denied(text):
                structlog.get_logger().info(
                    "a pod was denied",
                    namespace=placed.namespace,
                    pod=placed.name or placed.metadata.generate_name,
                    reason=text,
                    dry_run=bool(request.dry_run),
                )
                return deny(review, text)
            case NotOurs():
                return allow(review)
            case Pod() as admitted:
                return allow(review, json_patch(placed, admitted))
            case _:
                assert_never(decision)

    def _decide(self, request: ReviewRequest, pod: Pod) -> Pod | Denied | NotOurs:
        if request.adds_to_a_pod:
            before = decode_body(bytes(request.old_object), Pod)
            # All of them are looked at where nobody can say which are new.
            known = Pod() if isinstance(before, BadBody) else before
            return admit_ephemeral(pod, known, self._vendors())
        decision = admit(pod, self._vendors(), self._settings(), self._ledger())
        return decision.pod if isinstance(decision, Admitted) else decision


def _read(review: AdmissionReview, text: msgspec.Raw) -> Pod | AdmissionReview:
    """The pod, or the denial of one that is not looked at."""
    counted = decode_body(bytes(text), _Counted)
    if not isinstance(counted, BadBody) and counted.containers > MOST_CONTAINERS:
        return deny(
            review,
            f"the pod has {counted.containers} containers, and {MOST_CONTAINERS} are the most "
            "that is admitted; divide it into several pods",
        )
    pod = decode_body(bytes(text), Pod)
    if isinstance(pod, BadBody):
        problem = f"the pod cannot be read: {pod.problem}"
        return deny(review, problem, code=400, reason="BadRequest")
    return pod


def _in_namespace(pod: Pod, namespace: str) -> Pod:
    """The pod where it will be: the request names the namespace, the pod's text may not."""
    if not namespace or pod.metadata.namespace == namespace:
        return pod
    metadata = msgspec.structs.replace(pod.metadata, namespace=namespace)
    return msgspec.structs.replace(pod, metadata=metadata)
