"""Whose a bearer token is, and what he may do: the API server is asked about both.

https://kubernetes.io/docs/reference/access-authn-authz/authentication/
"""

from __future__ import annotations

from typing import Any

from hami.domain.kubernetes.objects import Lean, Metadata
from hami.kube.client import KubeClient
from hami.kube.resources import Resource


class UserInfo(Lean, frozen=True):
    """As a TokenReview names a user."""

    username: str = ""
    uid: str = ""
    groups: list[str] | None = None
    extra: dict[str, list[str]] | None = None


class TokenReviewStatus(Lean, frozen=True):
    authenticated: bool = False
    user: UserInfo = UserInfo()
    error: str = ""


class TokenReview(Lean, frozen=True):
    metadata: Metadata = Metadata()
    status: TokenReviewStatus = TokenReviewStatus()


class SubjectAccessReviewStatus(Lean, frozen=True):
    allowed: bool = False
    reason: str = ""


class SubjectAccessReview(Lean, frozen=True):
    metadata: Metadata = Metadata()
    status: SubjectAccessReviewStatus = SubjectAccessReviewStatus()


TOKEN_REVIEWS = Resource(
    group_version="authentication.k8s.io/v1",
    plural="tokenreviews",
    kind="TokenReview",
    type=TokenReview,
    namespaced=False,
)
ACCESS_REVIEWS = Resource(
    group_version="authorization.k8s.io/v1",
    plural="subjectaccessreviews",
    kind="SubjectAccessReview",
    type=SubjectAccessReview,
    namespaced=False,
)


async def user_of(client: KubeClient, token: str) -> UserInfo | None:
    """Whose the token is; None if it is nobody's, or not meant for the API server.

    Raises:
        ApiError: the API server does not say.
    """
    review = await client.create(TOKEN_REVIEWS, {"spec": {"token": token}})
    return review.status.user if review.status.authenticated else None


async def may(client: KubeClient, user: UserInfo, **attributes: str) -> bool:
    """Whether he may do this; ``attributes`` are ResourceAttributes of a SubjectAccessReview.

    Raises:
        ApiError: the API server does not say.
    """
    spec: dict[str, Any] = {
        "user": user.username,
        "uid": user.uid,
        "groups": user.groups or [],
        "extra": user.extra or {},
        "resourceAttributes": attributes,
    }
    review = await client.create(ACCESS_REVIEWS, {"spec": spec})
    return review.status.allowed
