"""Any object of a manifest, sent to the API server."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hami.domain.errors import ConfigError, shortened
from hami.domain.kubernetes.objects import Lean, Metadata
from hami.kube.client import KubeClient
from hami.kube.errors import CONFLICT, ApiError
from hami.kube.resources import Resource
from hami.simulate.documents import Document
from hami_lab.api.objects.kinds import Kinds
from hami_lab.cluster.definitions import defined_kind

ALREADY_EXISTS = "AlreadyExists"


class AnyObject(Lean, frozen=True):
    """An object of any kind; what differs from kind to kind is undecoded values."""

    kind: str = ""
    metadata: Metadata = Metadata()
    spec: dict[str, Any] | None = None
    status: dict[str, Any] | None = None


def resource_of(api_version: str, kind: str) -> Resource[AnyObject]:
    """Where objects of this kind live.

    Raises:
        ConfigError: it is neither a built-in kind nor one of ours.
    """
    known = Kinds().of(api_version, kind) or defined_kind(api_version, kind)
    if known is None:
        raise ConfigError(
            f"the embedded cluster knows no {shortened(kind)} in {shortened(api_version)!r}; check "
            f"apiVersion and kind"
        )
    return Resource(
        group_version=api_version,
        plural=known.plural,
        kind=kind,
        type=AnyObject,
        namespaced=known.namespaced,
    )


def flattened(documents: Iterable[Document]) -> Iterable[Document]:
    """Every object; a List is its items.

    Raises:
        ConfigError: one is no object with apiVersion, kind and metadata.
    """
    for document in documents:
        value: Any = document.value
        whole = isinstance(value, dict) and all(
            isinstance(value.get(key), str) and value[key] for key in ("apiVersion", "kind")
        )
        if not whole:
            raise ConfigError(
                f"{document.place}: this is no Kubernetes object; write apiVersion, kind and "
                f"metadata"
            )
        items = value.get("items")
        if value["kind"].endswith("List") and isinstance(items, list):
            inner = (Document(document.file, document.line, item) for item in items)
            yield from flattened(inner)
        elif not isinstance(value.get("metadata"), dict):
            raise ConfigError(f"{document.place}: this {shortened(value['kind'])} has no metadata")
        else:
            yield document


async def apply(client: KubeClient, value: Mapping[str, Any]) -> AnyObject:
    """Create the object, or merge it into the one that is there; as ``kubectl apply`` would.

    Raises:
        ConfigError: its kind is unknown.
        ApiError: the API server refuses it.
    """
    resource = resource_of(value["apiVersion"], value["kind"])
    metadata = value["metadata"]
    namespace = (metadata.get("namespace") or "default") if resource.namespaced else ""
    try:
        return await client.create(resource, value, namespace=namespace)
    except ApiError as error:
        if error.status != CONFLICT or error.reason != ALREADY_EXISTS:
            raise
    return await client.patch(resource, metadata["name"], value, namespace=namespace)
