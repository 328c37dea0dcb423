"""Admission reviews, in both versions of the API."""

from __future__ import annotations

import base64

import msgspec
import pytest

from hami.domain.kubernetes.objects import Pod
from hami.wire.admission import AdmissionReview, allow, deny
from hami.wire.bodies import BadBody, decode_body

BODY = b"""{"apiVersion":"admission.k8s.io/%s","kind":"AdmissionReview","request":{
"uid":"u1","kind":{"group":"","version":"v1","kind":"Pod"},"namespace":"team","operation":"CREATE",
"userInfo":{"username":"kubernetes-admin"},"object":{"metadata":{"name":"p"}},"oldObject":null,
"dryRun":true}}"""


def a_review(version=b"v1"):
    return decode_body(BODY % version, AdmissionReview)


def golden(review):
    return msgspec.json.encode(review).decode()


def test_reads_what_is_asked():
    request = a_review().request
    assert (request.uid, request.namespace, request.operation) == ("u1", "team", "CREATE")
    assert request.dry_run is True
    assert msgspec.json.decode(request.object, type=Pod).name == "p"


def test_a_request_that_deletes_has_no_object():
    review = decode_body(b'{"request":{"uid":"u1","object":null}}', AdmissionReview)
    assert bytes(review.request.object) == b"null"
    assert review.request.dry_run is None


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"{", id="cut off"),
        pytest.param(b'{"request":{}}', id="a request without a uid"),
        pytest.param(b'{"request":[]}', id="a list for a request"),
    ],
)
def test_a_bad_body_is_a_value(body):
    assert isinstance(decode_body(body, AdmissionReview), BadBody)


@pytest.mark.parametrize("version", [b"v1", b"v1beta1"])
def test_allows_in_the_version_that_asked(version):
    assert golden(allow(a_review(version))) == (
        f'{{"apiVersion":"admission.k8s.io/{version.decode()}","kind":"AdmissionReview",'
        '"response":{"uid":"u1","allowed":true}}'
    )


def test_allows_with_a_patch_and_warnings():
    operation = {"op": "add", "path": "/spec/schedulerName", "value": "hami-scheduler"}
    answer = allow(a_review(), [operation], ["gpumem 1000 counts MiB"])
    patch = base64.b64encode(
        b'[{"op":"add","path":"/spec/schedulerName","value":"hami-scheduler"}]'
    ).decode()
    assert golden(answer) == (
        '{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"u1",'
        f'"allowed":true,"patchType":"JSONPatch","patch":"{patch}",'
        '"warnings":["gpumem 1000 counts MiB"]}}'
    )


def test_denies_with_a_text():
    assert golden(deny(a_review(), "exceeding resource quota")) == (
        '{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"u1",'
        '"allowed":false,"status":{"code":403,"reason":"Forbidden",'
        '"message":"exceeding resource quota"}}}'
    )


def test_denies_what_it_cannot_read_as_a_bad_request():
    status = deny(a_review(), "no pod", code=400, reason="BadRequest").response.status
    assert (status.code, status.reason) == (400, "BadRequest")
