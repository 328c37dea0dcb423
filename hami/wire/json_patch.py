"""The JSON patch (RFC 6902) from a pod to what admission made of it.

Our pods hold only the fields that we read. So the patch changes only those: the scheduler, the
runtime class, annotations, and each container's resources and environment. The patch applies to the
pod as it was sent, with all its other fields.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hami.domain.kubernetes.objects import Container, EnvVar, Pod, Resources

Operation = dict[str, Any]


def json_patch(before: Pod, after: Pod) -> list[Operation]:
    """The operations that turn ``before`` into ``after``; ``[]`` when there is nothing to do.

    Raises:
        ValueError: ``after`` differs where admission must not change anything: containers or
            environment variables were inserted, removed, renamed or reordered.
    """
    return [
        *_field("/spec/schedulerName", before.spec.scheduler_name, after.spec.scheduler_name),
        *_field(
            "/spec/runtimeClassName",
            before.spec.runtime_class_name or "",
            after.spec.runtime_class_name or "",
        ),
        *_entries("/metadata/annotations", before.metadata.annotations, after.metadata.annotations),
        *_containers(
            "/spec/initContainers",
            before.spec.init_containers or (),
            after.spec.init_containers or (),
        ),
        *_containers("/spec/containers", before.spec.containers, after.spec.containers),
        *_containers(
            "/spec/ephemeralContainers",
            before.spec.ephemeral_containers or (),
            after.spec.ephemeral_containers or (),
        ),
    ]


def _field(path: str, before: str, after: str) -> Iterator[Operation]:
    """The operations for a text that may be absent; ``add`` also replaces an empty text."""
    if before == after:
        return
    if not after:
        yield {"op": "remove", "path": path}
    else:
        yield {"op": "replace" if before else "add", "path": path, "value": after}


def _entries(
    path: str, before: Mapping[str, str] | None, after: Mapping[str, str] | None
) -> Iterator[Operation]:
    """The operations for a map of texts; the whole map at once where the pod has none yet."""
    wanted = after or {}
    if before is None:
        if wanted:
            yield {"op": "add", "path": path, "value": dict(wanted)}
        return
    for key in before:
        if key not in wanted:
            yield {"op": "remove", "path": f"{path}/{_escaped(key)}"}
    for key, value in wanted.items():
        if before.get(key) != value:
            op = "replace" if key in before else "add"
            yield {"op": op, "path": f"{path}/{_escaped(key)}", "value": value}


def _containers(
    path: str, before: Sequence[Container], after: Sequence[Container]
) -> Iterator[Operation]:
    if [c.name for c in before] != [c.name for c in after]:
        raise ValueError(
            f"{path}: admission must not add, remove or rename containers: "
            f"{[c.name for c in before]} became {[c.name for c in after]}"
        )
    for number, (old, new) in enumerate(zip(before, after, strict=True)):
        yield from _resources(f"{path}/{number}/resources", old.resources, new.resources)
        yield from _env(f"{path}/{number}/env", old.env, new.env)


def _resources(path: str, before: Resources | None, after: Resources | None) -> Iterator[Operation]:
    if after is None:
        after = Resources()
    if before is None:
        maps = {"limits": after.limits, "requests": after.requests}
        if value := {name: dict(entries) for name, entries in maps.items() if entries}:
            yield {"op": "add", "path": path, "value": value}
        return
    yield from _entries(f"{path}/limits", before.limits, after.limits)
    yield from _entries(f"{path}/requests", before.requests, after.requests)


def _env(
    path: str, before: Sequence[EnvVar] | None, after: Sequence[EnvVar] | None
) -> Iterator[Operation]:
    """Changed variables in place, new ones at the end.

    A changed variable is replaced whole, because a ``valueFrom`` beside its ``value`` is not
    allowed.
    """
    old, new = before or (), after or ()
    if [e.name for e in old] != [e.name for e in new[: len(old)]]:
        raise ValueError(
            f"{path}: admission must not remove, rename or reorder variables: "
            f"{[e.name for e in old]} became {[e.name for e in new]}"
        )
    if before is None:
        if new:
            yield {"op": "add", "path": path, "value": [_variable(e) for e in new]}
        return
    for number, variable in enumerate(new):
        if number >= len(old):
            yield {"op": "add", "path": f"{path}/-", "value": _variable(variable)}
        elif variable != old[number]:
            yield {"op": "replace", "path": f"{path}/{number}", "value": _variable(variable)}


def _variable(variable: EnvVar) -> dict[str, str]:
    return {"name": variable.name, "value": variable.value}


def _escaped(key: str) -> str:
    """A key escaped for a JSON pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")
