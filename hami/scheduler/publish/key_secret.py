"""The signing keys' home in the cluster: a Secret that all replicas share.

Not here: what keys are and do (:mod:`hami.signing`).
"""

from __future__ import annotations

import base64
import binascii
from typing import Any, Protocol, TypeVar

from hami.domain.errors import ConfigError
from hami.kube.errors import CONFLICT, FORBIDDEN, NOT_FOUND, ApiError
from hami.kube.resources import SECRETS, HasMetadata, Resource, Secret
from hami.signing import new_private_pem

T = TypeVar("T", bound=HasMetadata)

SECRET_KEY = "signing-key.pem"  # noqa: S105 -- the name of an entry, not a secret
"""The entry of the Secret's data that holds the PEM blocks."""

_MOST_RACES = 5


class SecretClient(Protocol):
    """The part of ``hami.kube.client.KubeClient`` that keys need."""

    async def get(self, resource: Resource[T], name: str, *, namespace: str = "") -> T: ...

    async def create(self, resource: Resource[T], body: Any, *, namespace: str = "") -> T: ...

    async def patch(
        self, resource: Resource[T], name: str, patch: Any, *, namespace: str = ""
    ) -> T: ...


class KeySecret:
    """The Secret that all replicas share; a replica that finds it missing or empty fills it."""

    every = 10.0

    def __init__(self, client: SecretClient, namespace: str, name: str) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name

    def __str__(self) -> str:
        return f"Secret {self._namespace}/{self._name}"

    async def read(self) -> bytes:
        """Read the keys; the first replica makes them.

        Raises:
            ConfigError: forbidden, or the Secret's content is no base64.
            ApiError: the API server did not answer.
        """
        for _ in range(_MOST_RACES):
            try:
                secret = await self._found_or_made()
            except ApiError as error:
                if error.status == CONFLICT:
                    continue  # Another replica was quicker: read what it made.
                if error.status == FORBIDDEN:
                    raise ConfigError(
                        f"{self} may not be used: {error}; allow get, create and patch of it, or "
                        "create it with an entry " + SECRET_KEY
                    ) from error
                raise
            return self._pem_of(secret)
        raise ConfigError(f"{self} is changed all the time; find out who writes it")

    async def _found_or_made(self) -> Secret:
        data = {SECRET_KEY: base64.b64encode(new_private_pem()).decode("ascii")}
        try:
            secret = await self._client.get(SECRETS, self._name, namespace=self._namespace)
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise
            about = {"name": self._name, "namespace": self._namespace}
            body = {"apiVersion": "v1", "kind": "Secret", "metadata": about, "data": data}
            return await self._client.create(SECRETS, body, namespace=self._namespace)
        if (secret.data or {}).get(SECRET_KEY):
            return secret
        # A chart has made the Secret, for a role that may not create one. The resource version is a
        # precondition: one of two replicas gets a conflict.
        version = {"resourceVersion": secret.metadata.resource_version}
        patch = {"metadata": version, "data": data}
        return await self._client.patch(SECRETS, self._name, patch, namespace=self._namespace)

    def _pem_of(self, secret: Secret) -> bytes:
        try:
            return base64.b64decode((secret.data or {}).get(SECRET_KEY, ""), validate=True)
        except (binascii.Error, ValueError) as error:
            raise ConfigError(f"{self}: {SECRET_KEY} is no base64; delete the entry") from error
