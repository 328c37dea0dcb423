"""Containers that another agent answered for: they start with the devices of their allocation."""

from __future__ import annotations

import pytest

from hami.domain.slices import Mount
from hami.node.pod.pods import NotGranted
from hami.node.slice.live_slices import Prepared
from hami.node.slice.other_agents import start_foreign

from ..parts import a_grant, an_entry

MOUNTED = (Mount(host_path="/dev/null", container_path="/var/run/volume-devices/A"),)


@pytest.mark.parametrize(
    ("grants", "edits", "starts"),
    [
        ("A", {"env": {"VISIBLE": "A"}}, True),
        ("A", {"env": {"VISIBLE": "A,B"}}, False),
        ("A", {"env": {"VISIBLE": "B"}}, False),
        ("A", {"env": {}}, False),
        ("AB", {"env": {"VISIBLE": "A,B"}}, True),
        ("AB", {"env": {"VISIBLE": "A"}}, False),
        ("A", {"mounts": MOUNTED}, True),
        ("A", {"annotations": {"cdi.k8s.io/x": "acme.com/gpu=A"}}, True),
        ("A", {"cdi_devices": ("acme.com/gpu=A",)}, True),
        ("A", {"cdi_devices": ("acme.com/gpu=B",)}, False),
    ],
)
async def test_the_answer_names_the_devices_of_the_allocation(parts, grants, edits, starts):
    pod = parts.pod(main=[a_grant(id) for id in grants])
    outcome = await start_foreign(an_entry(pod, **edits), parts.around)
    if starts:
        assert isinstance(outcome, Prepared)
        assert outcome.edits is None
        assert [reason for _, reason, _ in parts.events.said] == ["ForeignSlice"]
    else:
        assert isinstance(outcome, NotGranted)
        assert "delete the pod" in outcome.text
        assert parts.events.said == []


@pytest.mark.parametrize(
    ("pod", "words", "ended"),
    [
        ({"phase": "Failed"}, "has ended", True),
        ({"sign": False}, "has no signature", False),
        ({"node": "n2"}, "is bound to node", False),
    ],
)
async def test_refused(parts, pod, words, ended):
    outcome = await start_foreign(an_entry(parts.pod(**pod), env={"V": "A"}), parts.around)
    assert isinstance(outcome, NotGranted)
    assert words in outcome.text
    assert outcome.ended is ended


@pytest.mark.parametrize("away", [False, True])
async def test_a_pod_that_nobody_knows_has_ended_only_if_somebody_could_be_asked(parts, away):
    parts.pods.away = away
    outcome = await start_foreign(an_entry("uid-x", env={"V": "A"}), parts.around)
    assert isinstance(outcome, NotGranted)
    assert outcome.ended is not away
