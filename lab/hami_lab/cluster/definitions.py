"""The custom resources that hami brings along, for a cluster that nobody installs a chart into.

The chart's definitions have schemas as well. The embedded API server checks none, so here they only
say what there is; a test holds the two together.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hami_lab.api.builtin.controllers import custom_kinds
from hami_lab.api.objects.kinds import Kind

Json = dict[str, Any]


def definitions() -> Iterator[Json]:
    """One CustomResourceDefinition each."""
    nos = "nos.nebuly.com"
    yield _definition(nos, "ElasticQuota", "elasticquotas", "eq", "eqs", status=True)
    yield _definition(
        nos, "CompositeElasticQuota", "compositeelasticquotas", "ceq", "ceqs", status=True
    )
    yield _definition("quota.hami.io", "QuotaTree", "quotatrees", "qt", scope="Cluster")


def defined_kind(api_version: str, kind: str) -> Kind | None:
    """By what a manifest says about itself."""
    found = (known for definition in definitions() for known in custom_kinds(definition))
    return next((k for k in found if (k.group_version, k.kind) == (api_version, kind)), None)


def _definition(
    group: str,
    kind: str,
    plural: str,
    *short_names: str,
    scope: str = "Namespaced",
    status: bool = False,
) -> Json:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1alpha1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        **({"subresources": {"status": {}}} if status else {}),
    }
    names = {
        "kind": kind,
        "listKind": f"{kind}List",
        "plural": plural,
        "singular": kind.lower(),
        "shortNames": list(short_names),
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "scope": scope, "names": names, "versions": [version]},
    }
