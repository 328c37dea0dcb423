"""Who may resize a pod: whoever may ``update`` its ``pods/resize``, as the API server says.

The caller's own bearer token says who he is. It is shown to the API server alone, and not kept.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Literal

from hami.kube.client import KubeClient
from hami.kube.errors import ApiError
from hami.kube.reviews import UserInfo, may, user_of

AT_ONCE = 8
"""Callers whom the API server is asked about at the same time."""
MOST_WAITING = 64
"""Others are turned away at once: anybody can send tokens."""


@dataclass(frozen=True, slots=True)
class NotAllowed:
    """``unauthenticated``: nobody knows the token. ``busy``: too many ask, or nobody answers."""

    why: Literal["unauthenticated", "forbidden", "busy"]
    text: str


class Authorizer:
    """Asks the API server, for a few callers at a time."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._waiting = 0

    async def may_resize(self, token: str, namespace: str, name: str) -> UserInfo | NotAllowed:
        """The user of this token, if he may resize this pod; whether it exists is not said."""
        if self._waiting >= MOST_WAITING:
            return NotAllowed("busy", f"{self._waiting} others are being identified; try again")
        self._waiting += 1
        try:
            async with self._turns:
                return await self._judged(token, namespace, name)
        except ApiError as error:
            return NotAllowed("busy", f"the API server does not say who you are: {error}")
        finally:
            self._waiting -= 1

    async def _judged(self, token: str, namespace: str, name: str) -> UserInfo | NotAllowed:
        user = await user_of(self._client, token)
        if user is None:
            return NotAllowed(
                "unauthenticated", "the API server knows no such token, or it has ended"
            )
        allowed = await may(
            self._client,
            user,
            verb="update",
            resource="pods",
            subresource="resize",
            namespace=namespace,
            name=name,
        )
        if allowed:
            return user
        return NotAllowed(
            "forbidden",
            f"user {user.username} may not update pods/resize of pod {name} in namespace "
            f"{namespace}; bind him to a role that may",
        )
