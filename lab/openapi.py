"""Writes ``hami_lab/api/typed/kubernetes.json``: the types of every kind that we serve.

Read from Kubernetes' OpenAPI definitions as the distribution ``kubernetes-validate`` carries them.
``make openapi`` runs it; the result is in the repository, because 100 MB of schemas are too much to
install for what 100 KB say.
"""

from __future__ import annotations

import json
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

from hami_lab.api.objects.kinds import builtin_kinds

VERSION = "1.36.0"
RESULT = Path(__file__).parent / "hami_lab" / "api" / "typed" / "kubernetes.json"
BESIDES = (
    "v1 Binding",
    "v1 DeleteOptions",
    "policy/v1 Eviction",
    "authentication.k8s.io/v1 TokenRequest",
)
"""Kinds that are sent and never stored."""

_LEAVES = {
    "meta.v1.Time": "time",
    "meta.v1.MicroTime": "microtime",
    "resource.Quantity": "quantity",
    "intstr.IntOrString": "int or text",
    "runtime.RawExtension": "any",
}
_PREFIXES = ("io.k8s.apiextensions-apiserver.pkg.apis.", "io.k8s.api.", "io.k8s.apimachinery.pkg.")


def name_of(definition: str) -> str:
    """``core.v1.Pod`` of ``io.k8s.api.core.v1.Pod``, or ``meta.v1.Time``, ``resource.Quantity``."""
    for prefix in _PREFIXES:
        definition = definition.removeprefix(prefix)
    return definition.removeprefix("apis.").removeprefix("api.").removeprefix("util.")


def type_of(schema: dict[str, Any]) -> str:
    """A field's type in the words of ``hami_lab.api.typed.types``."""
    if "$ref" in schema:
        name = name_of(schema["$ref"].rpartition("/")[2])
        return _LEAVES.get(name, name)
    written = schema.get("type", [])
    sort = next(
        (s for s in ([written] if isinstance(written, str) else written) if s in _SORTS), None
    )
    match sort:
        case "array":
            merged = "merge" in schema.get("x-kubernetes-patch-strategy", "").split(",")
            key = schema.get("x-kubernetes-patch-merge-key", "*") if merged else ""
            return f"[{key}]{type_of(schema['items'])}"
        case "object" if "additionalProperties" in schema:
            return "{}" + type_of(schema["additionalProperties"])
        case "integer":
            return schema.get("format", "int64")
        case None | "object":
            return "any"
        case _:
            return _SORTS[sort]


_SORTS = {
    "array": "", "object": "", "integer": "",
    "boolean": "bool", "number": "number", "string": "text",
}  # fmt: skip


def types(definitions: dict[str, Any]) -> dict[str, Any]:
    """The kinds, and every type that one of them leads to."""
    named = {name_of(name): schema for name, schema in definitions.items()}
    kinds: dict[str, str] = {}
    wanted = [f"{kind.group_version} {kind.kind}" for kind in builtin_kinds()] + list(BESIDES)
    for name, schema in named.items():
        for gvk in schema.get("x-kubernetes-group-version-kind", ()):
            group_version = "/".join(filter(None, (gvk["group"], gvk["version"])))
            if (kind := f"{group_version} {gvk['kind']}") in wanted:
                kinds[kind] = name
    if missing := sorted(set(wanted) - kinds.keys()):
        sys.exit(f"Kubernetes {VERSION} has no {', '.join(missing)}")
    found: dict[str, dict[str, str]] = {}
    ahead = list(kinds.values())
    while ahead:
        name = ahead.pop()
        if name in found or name not in named:
            continue
        fields = {
            field: type_of(schema) for field, schema in named[name].get("properties", {}).items()
        }
        found[name] = fields
        ahead += [text.rpartition("]")[2].rpartition("}")[2] for text in fields.values()]
    objects = {name: fields for name, fields in sorted(found.items()) if fields}
    for fields in objects.values():
        for field, text in fields.items():
            end = text.rpartition("]")[2].rpartition("}")[2]
            if end in found and end not in objects:  # Any JSON, as a CRD's default.
                fields[field] = text.removesuffix(end) + "any"
    return {"version": VERSION, "kinds": dict(sorted(kinds.items())), "types": objects}


def main() -> None:
    folder = files("kubernetes_validate") / "kubernetes-json-schema" / f"v{VERSION}-local"
    definitions = json.loads((folder / "_definitions.json").read_text())["$defs"]
    RESULT.write_text(json.dumps(types(definitions), indent=0) + "\n")


if __name__ == "__main__":
    main()
