"""Tokens of service accounts, as the TokenRequest API issues and the TokenReview API reads them.

A real server's are JWTs, which clients do not look into either.
https://kubernetes.io/docs/reference/kubernetes-api/authentication-resources/
"""

from __future__ import annotations

import hmac
import secrets
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from hami_lab.api.objects.kinds import Kinds
from hami_lab.api.objects.refusals import Cause, bad_request, invalid_named
from hami_lab.api.objects.storage import Item, Storage
from hami_lab.api.objects.times import now

Json = dict[str, Any]

AUDIENCE = "https://kubernetes.default.svc.cluster.local"
_SHORTEST, _USUAL = 600, 3600
"""Seconds that a token is good for."""
_BAD = "[invalid bearer token, Token has been invalidated]"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Issued:
    namespace: str
    name: str
    uid: str
    credential: str
    audiences: tuple[str, ...]
    until: datetime


class Tokens:
    """Those that this server issued, and its administrator's own."""

    def __init__(self, kinds: Kinds, storage: Storage, token: str) -> None:
        """``token``: the administrator's; empty: there is none."""
        self._accounts = kinds.named("serviceaccounts").storage
        self._storage = storage
        self._token = token
        self._issued: dict[str, _Issued] = {}

    def issue(self, account: Item, asked: Json) -> Json:
        """A TokenRequest's answer.

        Raises:
            Refusal: 422.
        """
        spec = asked.get("spec") or {}
        seconds = spec.get("expirationSeconds") or _USUAL
        if not isinstance(seconds, int) or seconds < _SHORTEST:
            cause = Cause.invalid(
                "spec.expirationSeconds", seconds, "may not specify a duration less than 10 minutes"
            )
            raise invalid_named("TokenRequest", "authentication.k8s.io", "", [cause])
        namespace, name = account.key
        until = datetime.now(UTC) + timedelta(seconds=seconds)
        audiences = list(spec.get("audiences") or [AUDIENCE])
        token = secrets.token_urlsafe(32)
        self._issued[token] = _Issued(
            namespace=namespace,
            name=name,
            uid=account.uid,
            credential=f"JTI={uuid.uuid4()}",
            audiences=tuple(audiences),
            until=until,
        )
        return {
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": {"name": name, "namespace": namespace, "creationTimestamp": now()},
            "spec": {
                "audiences": audiences,
                "expirationSeconds": seconds,
                "boundObjectRef": spec.get("boundObjectRef"),
            },
            "status": {
                "token": token,
                "expirationTimestamp": until.strftime("%Y-%m-%dT%H:%M:%SZ"),
            },
        }

    def review(self, asked: Json) -> Json:
        """A TokenReview's answer.

        Raises:
            Refusal: 400 without a token.
        """
        spec = asked.get("spec") or {}
        token = str(spec.get("token") or "")
        if not token:
            raise bad_request("token is required for TokenReview in authentication")
        audiences = list(spec.get("audiences") or [AUDIENCE])
        status: Json = {"user": {}, "error": _BAD}
        if self._token and hmac.compare_digest(token.encode(), self._token.encode()):
            user: Json | None = {
                "username": "kubernetes-admin",
                "groups": ["system:masters", "system:authenticated"],
            }
            shared = audiences
        else:
            user, shared = self._user(token, audiences)
        if user is not None and shared:
            status = {"authenticated": True, "user": user, "audiences": shared}
        return {**asked, "metadata": asked.get("metadata") or {}, "status": status}

    def _user(self, token: str, audiences: list[str]) -> tuple[Json | None, list[str]]:
        """Whose the token is, while it and its account are good, and for whom."""
        found = self._issued.get(token)
        if found is None or found.until < datetime.now(UTC):
            return None, []
        account = self._storage.get(self._accounts, found.namespace, found.name)
        if account is None or account.uid != found.uid:
            return None, []
        user = {
            "username": f"system:serviceaccount:{found.namespace}:{found.name}",
            "uid": found.uid,
            "groups": [
                "system:serviceaccounts",
                f"system:serviceaccounts:{found.namespace}",
                "system:authenticated",
            ],
            "extra": {"authentication.kubernetes.io/credential-id": [found.credential]},
        }
        return user, [one for one in audiences if one in found.audiences]
