"""The envelope of an admission review, and what tells one kind of question from another."""

from __future__ import annotations

from typing import Protocol

import msgspec

from hami.domain.errors import shortened
from hami.wire.admission import AdmissionRequest, AdmissionReview
from hami.wire.bodies import NULL, BadBody, decode_body

_VERSIONS = frozenset({"admission.k8s.io/v1", "admission.k8s.io/v1beta1"})
_REVIEW = "AdmissionReview"


class ReviewMetrics(Protocol):
    """Counts reviews; ``outcome`` is ``allowed``, ``patched``, ``denied`` or ``error``."""

    def reviewed(self, seconds: float, outcome: str) -> None: ...


class ReviewedKind(msgspec.Struct, frozen=True):
    group: str = ""
    kind: str = ""


class ReviewRequest(AdmissionRequest, frozen=True):
    """The request with what it is about; ``old_object`` is what an update replaces, undecoded."""

    kind: ReviewedKind = ReviewedKind()
    sub_resource: str = ""
    old_object: msgspec.Raw = NULL

    @property
    def creates_a_pod(self) -> bool:
        return (
            self.operation == "CREATE"
            and not self.sub_resource
            and self.kind == ReviewedKind(group="", kind="Pod")
        )

    @property
    def adds_to_a_pod(self) -> bool:
        """An ephemeral container comes to a pod that is there."""
        return (
            self.operation == "UPDATE"
            and self.sub_resource == "ephemeralcontainers"
            and self.kind == ReviewedKind(group="", kind="Pod")
        )


class ReviewBody(AdmissionReview, frozen=True):
    request: ReviewRequest | None = None


def read_question(body: bytes) -> tuple[ReviewBody, ReviewRequest] | BadBody:
    """The review and its request; a body that is no review has no answer."""
    review = decode_body(body, ReviewBody)
    if isinstance(review, BadBody):
        return BadBody(expected=_REVIEW, problem=review.problem)
    if review.kind != _REVIEW or review.api_version not in _VERSIONS:
        said = f"kind {review.kind!r} of apiVersion {review.api_version!r}"
        known = " or ".join(sorted(_VERSIONS))
        return BadBody(expected=_REVIEW, problem=f"{shortened(said)}; expected {known}")
    if review.request is None or not review.request.uid:
        return BadBody(expected=_REVIEW, problem="it has no request with a uid")
    return review, review.request


def outcome_of(answer: AdmissionReview | BadBody) -> str:
    """As the metrics call it."""
    if isinstance(answer, BadBody) or answer.response is None:
        return "error"
    if not answer.response.allowed:
        return "denied"
    return "patched" if answer.response.patch else "allowed"
