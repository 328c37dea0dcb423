"""The example of nos' documentation on a real Kubernetes, from t1 to t2 and on to the guarantees."""

from __future__ import annotations

import time

import pytest

from .elastic import Team, shows
from .processes import until

SLICE = {"gpu": 1, "mem": 10 * 1024}
IN, OVER = "in-quota", "over-quota"


@pytest.fixture
def teams(defined):
    """``min`` 40, 10 and 30; ten devices of which each takes one pod of 10 GB."""
    cluster = defined
    cluster.add_nodes("n1", "n2", devices="t4x5")
    cluster.scheduled()
    return [Team(cluster, name, least) for name, least in (("a", 40), ("b", 10), ("c", 30))]


def test_the_example_of_nos_from_t1_to_t2_and_on(teams, defined):
    a, b, c = teams
    for number in range(4):
        a.runs(number, **SLICE)
        b.runs(number, **SLICE)
    shows(teams, 40, 40, 0)
    labels = {"b-0": IN, "b-1": OVER, "b-2": OVER, "b-3": OVER}
    until("b's labels are nos'", lambda: b.labels() == labels, seen=b.labels)
    assert a.labels() == {f"a-{n}": IN for n in range(4)}

    # t2: a's share of what c does not use is 15, b holds more than its 10 and 3.
    a.comes_in(a.asks(4, **SLICE))
    shows(teams, 50, 30, 0)
    assert b.bound() == ["b-0", "b-1", "b-2"], "its youngest over-quota pod goes"
    until("a-4 is over quota", lambda: a.labels().get("a-4") == OVER, seen=a.labels)
    until("the victim is told", lambda: b.events("b-3", "Preempted"))
    (said,) = b.events("b-3", "Preempted")
    assert f"{a.namespace}/a-4" in said
    assert "fair" in said
    (said,) = a.events("a-4", "Preempting")
    assert f"{b.namespace}/b-3" in said

    # 60 is more than 55, and 40 more than 13: whoever asks now waits, and nobody goes.
    a.waits(a.asks(5, **SLICE))
    b.waits(b.asks(4, **SLICE))
    time.sleep(1.5)  # Longer than a claimant for whom there was no plan rests.
    assert (len(a.bound()), len(b.bound())) == (5, 3)

    # c is guaranteed 30 and gets them: from b and then from a, until both are at their min.
    for number in range(3):
        c.comes_in(c.asks(number, **SLICE))
    shows(teams, 40, 10, 30)
    assert (len(a.bound()), b.bound(), len(c.bound())) == (4, ["b-0"], 3)
    until("nobody is over quota", lambda: OVER not in {**a.labels(), **b.labels(), **c.labels()}.values())  # fmt: skip
    c.waits(c.asks(3, **SLICE))
    evictions = [
        w for w in defined.plane.writes() if w.what == "pods/eviction" and w.user == "hami"
    ]
    mine = [w for w in evictions if w.namespace.startswith(defined.namespace)]
    assert [w.status for w in mine] == [201] * 4
