"""What the API server answers when it does not do what was asked: Kubernetes' Status objects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from hami.domain.errors import HamiError
from hami_lab.api.objects.kinds import Kind

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Cause:
    """One field that is wrong; ``problem`` begins with Kubernetes' word for the sort of error."""

    field: str
    problem: str
    reason: str = "FieldValueInvalid"

    @classmethod
    def required(cls, field: str, detail: str = "") -> Cause:
        return cls(
            field, f"Required value{': ' if detail else ''}{detail}", reason="FieldValueRequired"
        )

    @classmethod
    def invalid(cls, field: str, value: Any, detail: str) -> Cause:
        shown = msgspec.json.encode(value).decode()
        return cls(field, f"Invalid value: {shown}: {detail}")

    @classmethod
    def forbidden(cls, field: str, detail: str) -> Cause:
        return cls(field, f"Forbidden: {detail}", reason="FieldValueForbidden")

    @classmethod
    def duplicate(cls, field: str, value: str) -> Cause:
        return cls(field, f'Duplicate value: "{value}"', reason="FieldValueDuplicate")


class Refusal(HamiError):
    """A request that is not carried out; becomes the Status object of the answer."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: Json | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.retry_after = retry_after

    def status(self) -> Json:
        """The Status object, as kube-apiserver writes it."""
        answer: Json = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
        answer["message"] = self.message
        if self.reason:
            answer["reason"] = self.reason
        details = dict(self.details or {})
        if self.retry_after is not None:
            details["retryAfterSeconds"] = self.retry_after
        if details or self.details is not None:
            answer["details"] = details
        answer["code"] = self.code
        return answer


def success(**details: Any) -> Json:
    """The Status object of a request that has no object to answer with."""
    answer: Json = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if details:
        answer["details"] = details
    return answer


def bad_request(message: str) -> Refusal:
    return Refusal(400, "BadRequest", message)


def not_found(kind: Kind, name: str) -> Refusal:
    return Refusal(
        404, "NotFound", f'{kind.resource} "{name}" not found', details=_resource(kind, name)
    )


def unknown_resource() -> Refusal:
    return Refusal(404, "NotFound", "the server could not find the requested resource", details={})


def method_not_allowed() -> Refusal:
    return Refusal(
        405,
        "MethodNotAllowed",
        "the server does not allow this method on the requested resource",
        details={},
    )


def already_exists(kind: Kind, name: str) -> Refusal:
    return Refusal(
        409,
        "AlreadyExists",
        f'{kind.resource} "{name}" already exists',
        details=_resource(kind, name),
    )


def conflict(kind: Kind, name: str, why: str, *, resource: str = "") -> Refusal:
    """409; ``resource`` names another one than the kind's own (``pods/binding``, ``Pod``)."""
    shown = resource or kind.resource
    details = {**_resource(kind, name), "kind": resource or kind.plural}
    return Refusal(
        409,
        "Conflict",
        f'Operation cannot be fulfilled on {shown} "{name}": {why}',
        details=details,
    )


def modified(kind: Kind, name: str) -> Refusal:
    return conflict(
        kind,
        name,
        "the object has been modified; please apply your changes to the latest version and try "
        "again",
    )


def wrong_uid(kind: Kind, namespace: str, name: str, wanted: str, found: str) -> Refusal:
    """The text of kube-apiserver's storage layer, which clients show to people."""
    key = "/".join(filter(None, ("/registry", kind.group, kind.plural, namespace, name)))
    return conflict(
        kind,
        name,
        f"StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, "
        f"AdditionalErrorMsg: Precondition failed: UID in precondition: {wanted}, "
        f"UID in object meta: {found}",
    )


def forbidden(kind: Kind, name: str, why: str, *, causes: Sequence[Cause] = ()) -> Refusal:
    details = _resource(kind, name)
    if causes:
        details["causes"] = _causes(causes)
    return Refusal(
        403, "Forbidden", f'{kind.resource} "{name}" is forbidden: {why}', details=details
    )


def invalid(kind: Kind, name: str, causes: Sequence[Cause], *, shown: str = "") -> Refusal:
    """422 with every field that is wrong."""
    return invalid_named(shown or kind.kind, kind.group, name, causes)


def invalid_named(kind: str, group: str, name: str, causes: Sequence[Cause]) -> Refusal:
    texts = [f"{cause.field}: {cause.problem}" for cause in causes]
    shown = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    title = f"{kind}.{group}" if group else kind
    details: Json = {"name": name} if name else {}
    if group:
        details["group"] = group
    details |= {"kind": kind, "causes": _causes(causes)}
    return Refusal(422, "Invalid", f'{title} "{name}" is invalid: {shown}', details=details)


def invalid_option(options: str, causes: Sequence[Cause]) -> Refusal:
    """A query parameter that cannot be; ``options`` is ``CreateOptions`` and the like."""
    return invalid_named(options, "meta.k8s.io", "", causes)


def rejected_patch(detail: str) -> Refusal:
    """A patch that does not apply, or whose result is no such object."""
    cause = Cause("patch", f"Invalid value: {detail}")
    return Refusal(
        422,
        "Invalid",
        f' "" is invalid: patch: {cause.problem}',
        details={"causes": _causes([cause])},
    )


def expired(message: str) -> Refusal:
    return Refusal(410, "Expired", message)


def unsupported_media_type(accepted: str) -> Refusal:
    return Refusal(
        415,
        "UnsupportedMediaType",
        "the body of the request was in an unknown format - accepted media types include: "
        + accepted,
    )


def _resource(kind: Kind, name: str) -> Json:
    details: Json = {"name": name} if name else {}
    if kind.group:
        details["group"] = kind.group
    details["kind"] = kind.plural
    return details


def _causes(causes: Sequence[Cause]) -> list[Json]:
    return [
        {"reason": cause.reason, "message": cause.problem, "field": cause.field} for cause in causes
    ]
