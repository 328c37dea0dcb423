"""The two subresources of a pod that decide where it runs: binding and eviction."""

from __future__ import annotations

from typing import Any

from hami_lab.api.objects.kinds import Kind
from hami_lab.api.objects.refusals import bad_request, conflict, invalid, wrong_uid
from hami_lab.api.objects.request import Request
from hami_lab.api.objects.times import now
from hami_lab.api.typed.conforming import WrongType, conform
from hami_lab.api.typed.types import KINDS
from hami_lab.api.typed.validation import of_metadata
from hami_lab.api.writes.deletion import DeleteOptions, delete_options
from hami_lab.api.writes.operations import Operations

Json = dict[str, Any]


class Placing:
    """Binds pods to nodes, and evicts them."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations

    async def bind(self, request: Request, binding: Json) -> None:
        """Assign a pod: node, annotations, labels and condition in one write.

        Raises:
            Refusal: 400, 404, 409, 422, or a webhook's.
        """
        request.check_options()
        operations = self._operations
        node, metadata = _checked_binding(request, binding)
        if operations.admission.concerned("CREATE", request):
            operations.find(request.kind, request.namespace, request.name)
            mutated = await operations.admission.mutate("CREATE", request, binding)
            node, metadata = _checked_binding(request, mutated)
            await operations.admission.validate("CREATE", request, mutated)
        item = operations.find(request.kind, request.namespace, request.name)
        body = item.object()
        _check_free(request, body, str(metadata.get("uid") or ""))
        body["spec"]["nodeName"] = node
        for field in ("annotations", "labels"):
            if given := metadata.get(field):
                body["metadata"][field] = {**(body["metadata"].get(field) or {}), **given}
        set_condition(body, {"type": "PodScheduled", "status": "True"})
        body["status"].pop("nominatedNodeName", None)
        if problems := list(of_metadata(request.storage, body["metadata"])):
            raise invalid(request.kind, request.name, problems)
        if not request.dry_run:
            operations.storage.put(request.storage, body)

    async def evict(self, request: Request, eviction: Json) -> None:
        """Delete a pod if its disruption budget lets it go.

        Raises:
            Refusal: 400, 404, 409, 429, or a webhook's.
        """
        request.check_options()
        operations = self._operations
        _check_types(eviction, "policy/v1 Eviction")
        name = (eviction.get("metadata") or {}).get("name")
        if name not in (None, "", request.name):
            raise bad_request("name in URL does not match name in Eviction object")
        options = delete_options(eviction.get("deleteOptions") or {}, {})
        pod = operations.find(request.kind, request.namespace, request.name)
        operations.deletion.check(request.kind, pod, options)
        if operations.admission.concerned("CREATE", request):
            await operations.admission.validate("CREATE", request, eviction)
            pod = operations.find(request.kind, request.namespace, request.name)
        body = pod.object()
        operations.disruption.refuse(pod, body)
        if request.dry_run:
            return
        if not body["metadata"].get("deletionTimestamp"):
            condition = {
                "type": "DisruptionTarget",
                "status": "True",
                "reason": "EvictionByEvictionAPI",
                "message": "Eviction API: evicting",
            }
            set_condition(body, condition)
            pod = operations.storage.put(request.storage, body)
        unconditional = DeleteOptions(grace=options.grace, propagation=options.propagation)
        operations.deletion.delete(request.kind, pod, unconditional)


def _checked_binding(request: Request, binding: Json) -> tuple[str, Json]:
    """The node and the metadata of a Binding.

    Raises:
        Refusal: 400. A real server answers some of these with 500; the texts are its own.
    """
    _check_types(binding, "v1 Binding")
    metadata, target = binding.get("metadata") or {}, binding.get("target") or {}
    if metadata.get("name") not in (None, "", request.name):
        raise bad_request("name in URL does not match name in Binding object")
    if metadata.get("namespace") not in (None, "", request.namespace):
        raise bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    kind, node = target.get("kind"), target.get("name")
    if kind not in (None, "", "Node"):
        raise bad_request(
            f'target.kind: Unsupported value: "{kind}": supported values: "Node", "<empty>"'
        )
    if not node:
        raise bad_request("target.name: Required value")
    return node, metadata


def _check_types(body: Json, kind: str) -> None:
    try:
        conform(KINDS[kind], body)
    except WrongType as error:
        raise bad_request(f"the body cannot be handled as {kind}: {error}") from error


def _check_free(request: Request, body: Json, uid: str) -> None:
    """Whether a pod can be assigned now.

    Raises:
        Refusal: 409.
    """
    kind: Kind = request.kind
    found = body["metadata"]["uid"]
    if uid and uid != found:
        raise wrong_uid(kind, request.namespace, request.name, uid, found)
    why = ""
    if body["metadata"].get("deletionTimestamp"):
        why = "is being deleted, cannot be assigned to a host"
    elif node := body["spec"].get("nodeName"):
        why = f'is already assigned to node "{node}"'
    elif body["spec"].get("schedulingGates"):
        why = "has non-empty .spec.schedulingGates"
    if why:
        text = f"pod {request.name} {why}"
        raise conflict(kind, request.name, text, resource="pods/binding")


def set_condition(pod: Json, condition: Json) -> None:
    """Put a condition in place of the one of its type; the time moves when its status does."""
    conditions = pod.setdefault("status", {}).setdefault("conditions", [])
    type, status, *_ = condition.values()
    old = next((c for c in conditions if c.get("type") == type), None)
    moved = old is None or old.get("status") != status or not old.get("lastTransitionTime")
    when = now() if moved or old is None else old["lastTransitionTime"]
    new = {"type": type, "status": status, "lastProbeTime": None, "lastTransitionTime": when}
    new |= condition
    if old is None:
        conditions.append(new)
    else:
        conditions[conditions.index(old)] = new
