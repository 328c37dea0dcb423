"""What a write passes before it is stored: the built-in admission and the webhooks."""

from __future__ import annotations

import base64
import binascii
from typing import Any

import msgspec

from hami_lab.api.admission.webhooks import MUTATING, VALIDATING, Hook, Review, Webhooks
from hami_lab.api.builtin.controllers import not_ready_taint
from hami_lab.api.objects.kinds import Kind
from hami_lab.api.objects.refusals import Cause, Refusal, forbidden, not_found
from hami_lab.api.objects.request import Request
from hami_lab.api.objects.storage import Storage, copied
from hami_lab.api.patches.documents import DoesNotApply, json_patch
from hami_lab.api.typed.conforming import WrongType, conform
from hami_lab.api.typed.defaults import fill, fill_pod_admission, tolerate
from hami_lab.api.typed.types import type_of

Json = dict[str, Any]

_NAMESPACES = ("", "namespaces")
_CLASSES = ("scheduling.k8s.io", "priorityclasses")


class Admission:
    """Decides over a write; the object it gives back is what is to be stored."""

    def __init__(self, storage: Storage, webhooks: Webhooks) -> None:
        self._storage = storage
        self._webhooks = webhooks

    def namespace(self, request: Request) -> None:
        """Whether new content may go into the request's namespace.

        Raises:
            Refusal: 404 where it does not exist, 403 where it is on its way out.
        """
        if not request.kind.namespaced:
            return
        namespace = self._storage.get(_NAMESPACES, "", request.namespace)
        if namespace is None:
            raise missing_namespace(request.namespace)
        if namespace.fields["status.phase"] == "Terminating":
            raise forbidden(
                request.kind,
                request.name,
                f"unable to create new content in namespace {request.namespace} because it is "
                "being terminated",
                causes=[
                    Cause(
                        "metadata.namespace",
                        f"namespace {request.namespace} is being terminated",
                        reason="NamespaceTerminating",
                    )
                ],
            )

    def built_in(self, request: Request, body: Json) -> None:
        """What kube-apiserver's own plugins set on a new object; ``body`` is changed.

        Raises:
            Refusal: 403.
        """
        match request.storage:
            case ("", "pods"):
                self._prioritise(request, body)
                fill_pod_admission(body["spec"])
            case ("", "nodes"):
                taints = body["spec"].get("taints") or []
                if not_ready_taint() not in taints:
                    body["spec"]["taints"] = [*taints, not_ready_taint()]
            case _:
                pass

    def built_in_update(self, request: Request, body: Json) -> None:
        """What kube-apiserver's own plugins set on a changed object; ``body`` is changed."""
        if request.storage == ("", "pods") and not request.subresource:
            tolerate(body["spec"])

    def _prioritise(self, request: Request, body: Json) -> None:
        spec = body["spec"]
        name = spec.get("priorityClassName") or ""
        found = self._class(request, name)
        priority = found.get("value", 0) if found else 0
        if spec.get("priority") not in (None, priority):
            raise forbidden(
                request.kind,
                request.name,
                f"the integer value of priority ({spec['priority']}) must not be provided in pod "
                f"spec; priority admission controller computed {priority} from the given "
                "PriorityClass name",
            )
        spec["priority"] = priority
        if found:
            spec["priorityClassName"] = found["metadata"]["name"]
        policy = (found or {}).get("preemptionPolicy") or "PreemptLowerPriority"
        if not spec.get("preemptionPolicy"):
            spec["preemptionPolicy"] = policy

    def _class(self, request: Request, name: str) -> Json | None:
        classes = self._storage.collection(_CLASSES)
        if name:
            item = classes.items.get(("", name))
            if item is None:
                why = f"no PriorityClass with name {name} was found"
                raise forbidden(request.kind, request.name, why)
            return item.object()
        default = [c for c in (i.object() for i in classes.within()) if c.get("globalDefault")]
        return min(default, key=lambda c: int(c["value"]), default=None)

    def concerned(self, operation: str, request: Request) -> bool:
        """Whether any webhook may be called: where none is, a write does not wait."""
        return any(
            hook.concerns(operation, request)
            for configured in (MUTATING, VALIDATING)
            for hook in self._webhooks.configured(configured)
        )

    async def mutate(
        self, operation: str, request: Request, body: Json, old: Json | None = None
    ) -> Json:
        """What the mutating webhooks make of an object.

        One that asks for it is called again after a later one changed the object.

        Raises:
            Refusal: one denied or failed.
        """
        changed_after: list[Hook] = []
        again: list[Hook] = []
        review = Review(operation=operation, request=request, object=body, old=old)
        for hook in self._webhooks.concerned(MUTATING, review):
            mutated = await self._mutate_once(hook, operation, request, body, old)
            if mutated != body:
                again.extend(h for h in changed_after if h not in again)
            body = mutated
            if hook.reinvoked:
                changed_after.append(hook)
        for hook in again:
            body = await self._mutate_once(hook, operation, request, body, old)
        return body

    async def _mutate_once(
        self, hook: Hook, operation: str, request: Request, body: Json, old: Json | None
    ) -> Json:
        shown = copied(
            {"kind": request.kind.kind, "apiVersion": request.kind.group_version, **body}
        )
        review = Review(operation=operation, request=request, object=shown, old=old)
        response = await self._webhooks.call(hook, review)
        if response is None or not response.get("patch"):
            return body
        try:
            operations = msgspec.json.decode(base64.b64decode(response["patch"], validate=True))
            patched = json_patch(shown, operations)
            conform(type_of(request.kind), patched)
        except (msgspec.DecodeError, binascii.Error, DoesNotApply, WrongType) as error:
            raise Refusal(
                500, "InternalError", f"Internal error occurred: webhook {hook.name!r}: {error}"
            ) from error
        fill(request.storage, patched)
        return {k: v for k, v in patched.items() if k not in ("kind", "apiVersion")}

    async def validate(
        self, operation: str, request: Request, body: Json | None, old: Json | None = None
    ) -> None:
        """Ask the validating webhooks.

        Raises:
            Refusal: one denied or failed.
        """
        review = Review(operation=operation, request=request, object=body, old=old)
        for hook in self._webhooks.concerned(VALIDATING, review):
            await self._webhooks.call(hook, review)


def missing_namespace(name: str) -> Refusal:
    kind = Kind(group="", version="v1", plural="namespaces", kind="Namespace", namespaced=False)
    return not_found(kind, name)
