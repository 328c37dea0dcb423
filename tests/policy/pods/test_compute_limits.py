"""How much idle compute the author of a pod lets its containers have."""

from __future__ import annotations

import pytest

from hami.domain.requests import Invalid
from hami.domain.scheduling import SchedulingPolicy
from hami.policy.pods.pod_request import parse_pod

from ..builders import a_container, a_pod, the_vendors

LIMIT = "hami.io/gpucores-limit"
MAIN = a_container("main", gpu=1, cores=30)
SIDE = a_container("side", gpu=1, cores=50)
PLAIN = a_container("plain")
UNCAPPED = a_container("uncapped", gpu=1)


def parsed(annotations, *containers):
    pod = a_pod("p", *(containers or (MAIN, SIDE, PLAIN)), annotations=annotations)
    return parse_pod(pod, the_vendors(), SchedulingPolicy())


@pytest.mark.parametrize(
    ("annotations", "limits"),
    [
        ({}, [0, 0, 0]),
        ({LIMIT: "80"}, [80, 80, 0]),
        ({LIMIT: "50"}, [50, 50, 0]),
        ({f"{LIMIT}.main": "100"}, [100, 0, 0]),
        ({LIMIT: "80", f"{LIMIT}.side": "60"}, [80, 60, 0]),
        ({f"{LIMIT}.side": "60", LIMIT: "80"}, [80, 60, 0]),
        ({f"{LIMIT}.main": "30"}, [30, 0, 0]),
        ({"hami.io/gpucores-limits": "nonsense", "other/gpucores-limit": "x"}, [0, 0, 0]),
    ],
)
def test_a_limit_is_of_all_containers_that_ask_for_compute_or_of_one(annotations, limits):
    request = parsed(annotations)
    assert not isinstance(request, Invalid), request
    assert [c.cores_limit for c in request.containers] == limits


@pytest.mark.parametrize(
    ("annotations", "words"),
    [
        ({LIMIT: "0"}, "'0' is no whole number from 1 to 100"),
        ({LIMIT: "101"}, "'101' is no whole number"),
        ({LIMIT: "80%"}, "'80%' is no whole number"),
        ({LIMIT: "8\u0660"}, "is no whole number"),
        ({LIMIT: ""}, "'' is no whole number"),
        ({f"{LIMIT}.nobody": "80"}, "ask for some of it, which are ['main', 'side']"),
        ({f"{LIMIT}.plain": "80"}, "which are ['main', 'side']"),
        ({f"{LIMIT}.": "80"}, "which are ['main', 'side']"),
        ({LIMIT: "40"}, "container side: is guaranteed 50 % of compute and limited to 40 %"),
        ({LIMIT: "80", f"{LIMIT}.main": "20"}, "guaranteed 30 % of compute and limited to 20 %"),
    ],
)
def test_a_limit_that_makes_no_sense_is_refused_with_the_reason(annotations, words):
    request = parsed(annotations)
    assert isinstance(request, Invalid)
    assert words in request.text


def test_a_limit_needs_something_that_is_guaranteed():
    request = parsed({LIMIT: "80"}, UNCAPPED, PLAIN)
    assert isinstance(request, Invalid)
    assert "which are none here" in request.text


def test_whoever_asks_for_no_device_may_write_what_he_likes():
    assert not isinstance(parsed({LIMIT: "nonsense"}, PLAIN), Invalid)
