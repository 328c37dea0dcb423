"""Keeps the ``caBundle`` of the webhook configurations that call us at the CAs that we have."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar

from hami.domain.kubernetes.objects import Lean, Metadata
from hami.kube.errors import CONFLICT, FORBIDDEN, INVALID, NOT_FOUND, ApiError
from hami.kube.resources import HasMetadata, Resource

T = TypeVar("T", bound=HasMetadata)


class ClientConfig(Lean, frozen=True):
    ca_bundle: str = ""


class WebhookEntry(Lean, frozen=True):
    name: str = ""
    client_config: ClientConfig = ClientConfig()


class WebhookConfiguration(Lean, frozen=True):
    """A MutatingWebhookConfiguration or a ValidatingWebhookConfiguration."""

    metadata: Metadata = Metadata()
    webhooks: list[WebhookEntry] | None = None


_GROUP = "admissionregistration.k8s.io/v1"
MUTATING = Resource(
    group_version=_GROUP,
    plural="mutatingwebhookconfigurations",
    kind="MutatingWebhookConfiguration",
    type=WebhookConfiguration,
    namespaced=False,
)
VALIDATING = Resource(
    group_version=_GROUP,
    plural="validatingwebhookconfigurations",
    kind="ValidatingWebhookConfiguration",
    type=WebhookConfiguration,
    namespaced=False,
)


@dataclass(frozen=True, slots=True)
class NamedConfiguration:
    """A configuration whose webhooks all call us."""

    kind: Literal["mutating", "validating"]
    name: str

    @property
    def resource(self) -> Resource[WebhookConfiguration]:
        return MUTATING if self.kind == "mutating" else VALIDATING

    def __str__(self) -> str:
        return f"{self.resource.kind} {self.name}"


class WebhookClient(Protocol):
    """The part of ``hami.kube.client.KubeClient`` that this needs."""

    async def get(self, resource: Resource[T], name: str, *, namespace: str = "") -> T: ...

    async def patch(
        self,
        resource: Resource[T],
        name: str,
        patch: Any,
        *,
        namespace: str = "",
        kind: Literal["merge", "json", "strategic"] = "merge",
    ) -> T: ...


class CaBundles:
    """The bundles of these configurations; every other field of them is somebody else's."""

    def __init__(
        self,
        client: WebhookClient,
        configurations: Sequence[NamedConfiguration],
        on_problem: Callable[[str], None],
    ) -> None:
        self.configurations = tuple(configurations)
        self._client = client
        self._on_problem = on_problem
        self._told: set[NamedConfiguration] = set()

    async def keep(self, bundle: bytes) -> bool:
        """Write the bundle where it is not; whether it is everywhere now."""
        text = base64.b64encode(bundle).decode("ascii")
        return all([await self._kept(one, text) for one in self.configurations])

    async def _kept(self, one: NamedConfiguration, text: str) -> bool:
        try:
            await self._write(one, text)
        except ApiError as error:
            # Somebody else has written it between our look and our patch: look again.
            if error.status not in (CONFLICT, INVALID) and one not in self._told:
                self._told.add(one)
                self._on_problem(f"cannot keep the caBundle of {one}: {error}{_remedy(error)}")
            return False
        self._told.discard(one)
        return True

    async def _write(self, one: NamedConfiguration, text: str) -> None:
        found = await self._client.get(one.resource, one.name)
        wrong = [
            (number, webhook.name)
            for number, webhook in enumerate(found.webhooks or ())
            if webhook.client_config.ca_bundle != text
        ]
        if not wrong:
            return
        version = {"path": "/metadata/resourceVersion", "value": found.metadata.resource_version}
        operations = [{"op": "test", **version}]
        for number, name in wrong:
            at = f"/webhooks/{number}"
            operations += [
                {"op": "test", "path": f"{at}/name", "value": name},
                {"op": "add", "path": f"{at}/clientConfig/caBundle", "value": text},
            ]
        await self._client.patch(one.resource, one.name, operations, kind="json")


def _remedy(error: ApiError) -> str:
    if error.status == FORBIDDEN:
        return "; allow get and patch of it"
    if error.status == NOT_FOUND:
        return "; correct webhook-configurations, or create it"
    return "; trying again"
