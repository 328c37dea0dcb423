"""Every object against Kubernetes' own schemas, from 1.30 on; `make chart-check` brings those."""

from __future__ import annotations

import pytest

from ..kubernetes.chart import EXAMPLES, example, rendered

VERSIONS = [f"1.{minor}" for minor in range(30, 38)]
FOREIGN = ("cert-manager.io/", "monitoring.coreos.com/")
"""Kinds of operators, of which Kubernetes has no schema."""


@pytest.fixture(scope="module")
def schemas():
    return pytest.importorskip(
        "kubernetes_validate", reason="needs Kubernetes' schemas: run make chart-check"
    )


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ["", *EXAMPLES])
def test_every_object_is_one_of_this_version(schemas, name, version):
    checked = 0
    for thing in rendered(example(name) if name else {}):
        if not thing["apiVersion"].startswith(FOREIGN):
            assert schemas.validate(thing, version, strict=True).startswith(version)
            checked += 1
    assert checked > 30


@pytest.mark.parametrize("version", VERSIONS)
def test_a_wrong_field_is_seen(schemas, version):
    (found,) = [thing for thing in rendered() if thing["kind"] == "Deployment"]
    wrong = {**found, "spec": {**found["spec"], "replica": 2}}
    with pytest.raises(schemas.ValidationError):
        schemas.validate(wrong, version, strict=True)
