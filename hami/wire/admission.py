"""Admission reviews (``admission.k8s.io`` v1 and v1beta1): the question and the answer.

A pod that changes is answered with a JSON patch (:mod:`hami.wire.json_patch`).
https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from hami.wire.bodies import NULL


class _Review(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Base of the structs below: immutable, camelCase, defaults are not written."""


class AdmissionRequest(_Review, frozen=True):
    """What the API server is about to do; ``object`` is the new object, undecoded."""

    uid: str
    namespace: str = ""
    operation: str = ""
    dry_run: bool | None = None
    object: msgspec.Raw = NULL


class AdmissionStatus(_Review, frozen=True):
    """Why a request was refused: an HTTP code, its word, and a text for people."""

    code: int
    reason: str
    message: str


class AdmissionResponse(_Review, frozen=True):
    """``patch`` is base64 of a JSON patch and comes with ``patch_type`` ``JSONPatch``."""

    uid: str
    allowed: bool
    patch_type: str | None = None
    patch: str | None = None
    status: AdmissionStatus | None = None
    warnings: Sequence[str] = ()


class AdmissionReview(_Review, frozen=True):
    """The envelope of question and answer; the answer repeats the question's ``api_version``."""

    api_version: str = ""
    kind: str = ""
    request: AdmissionRequest | None = None
    response: AdmissionResponse | None = None


def allow(
    review: AdmissionReview,
    patch: Sequence[Mapping[str, Any]] = (),
    warnings: Sequence[str] = (),
) -> AdmissionReview:
    """Let the object pass, changed by the patch; an empty patch changes nothing."""
    encoded = base64.b64encode(msgspec.json.encode(patch)).decode() if patch else None
    return _answer(
        review,
        AdmissionResponse(
            uid=_uid(review),
            allowed=True,
            patch_type="JSONPatch" if patch else None,
            patch=encoded,
            warnings=tuple(warnings),
        ),
    )


def deny(
    review: AdmissionReview, message: str, *, code: int = 403, reason: str = "Forbidden"
) -> AdmissionReview:
    """Refuse the object with a text for its author; use a code below 500 for bad input."""
    status = AdmissionStatus(code=code, reason=reason, message=message)
    return _answer(review, AdmissionResponse(uid=_uid(review), allowed=False, status=status))


def _uid(review: AdmissionReview) -> str:
    return review.request.uid if review.request else ""


def _answer(review: AdmissionReview, response: AdmissionResponse) -> AdmissionReview:
    return AdmissionReview(api_version=review.api_version, kind=review.kind, response=response)
