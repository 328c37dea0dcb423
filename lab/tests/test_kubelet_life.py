"""A pod's life on a simulated node, by the clock."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hami_lab.kubelet.life import Life
from hami_lab.live import LivePod

BEGIN = 1_000_000.0


def a_pod(
    *,
    inits: list[dict[str, Any]] | None = None,
    apps: tuple[str, ...] = ("main",),
    policy: str = "Never",
    deadline: int | None = None,
    **script: str,
) -> LivePod:
    annotations = {f"hami.io/sim-{key.replace('_', '-')}": text for key, text in script.items()}
    return msgspec.convert(
        {
            "metadata": {"name": "p", "uid": "u", "annotations": annotations},
            "spec": {
                "nodeName": "n1",
                "restartPolicy": policy,
                "initContainers": inits,
                "containers": [{"name": name} for name in apps],
                "activeDeadlineSeconds": deadline,
            },
        },
        LivePod,
    )


def a_life(pod: LivePod) -> Life:
    return Life(pod, begin=BEGIN, address="10.0.0.1")


def at(life: Life, seconds: float) -> Life:
    life.advance(BEGIN + seconds)
    return life


def states(life: Life, kind: str = "containerStatuses") -> list[str]:
    """``running`` or ``terminated 0``, per container."""
    found = []
    for status in life.status()[kind]:
        ((state, about),) = status["state"].items()
        found.append(f"{state} {about['exitCode']}" if state == "terminated" else state)
    return found


def condition(life: Life, type_: str) -> str:
    return next(c["status"] for c in life.status()["conditions"] if c["type"] == type_)


SIDECAR = {"name": "sidecar", "restartPolicy": "Always"}
INIT = {"name": "init"}


@pytest.mark.parametrize(
    ("script", "second", "phase"),
    [
        pytest.param({}, 1e9, "Running", id="without a duration it runs on"),
        pytest.param({"duration": "10"}, 9.9, "Running", id="before its time is over"),
        pytest.param({"duration": "10"}, 10, "Succeeded", id="seconds"),
        pytest.param({"duration": "1m30s"}, 90, "Succeeded", id="a Go duration"),
        pytest.param({"duration": "0"}, 0, "Succeeded", id="no time at all"),
        pytest.param({"duration": "1", "exit_code": "3"}, 1, "Failed", id="an exit code"),
    ],
)
def test_how_long_it_runs_and_how_it_ends(script, second, phase):
    assert at(a_life(a_pod(**script)), second).phase == phase


@pytest.mark.parametrize(
    ("policy", "code", "phase", "restarts"),
    [
        ("Never", "0", "Succeeded", 0),
        ("Never", "1", "Failed", 0),
        ("OnFailure", "0", "Succeeded", 0),
        ("OnFailure", "1", "Running", 2),
        ("Always", "0", "Running", 2),
        ("Always", "1", "Running", 2),
    ],
)
def test_the_restart_policy_is_kubelets(policy, code, phase, restarts):
    life = at(a_life(a_pod(policy=policy, duration="5", exit_code=code)), 15 + 5 + 20)
    (status,) = life.status()["containerStatuses"]
    assert (life.phase, status["restartCount"]) == (phase, restarts)


def test_between_two_runs_a_container_backs_off_and_tells_of_the_last():
    life = at(a_life(a_pod(policy="Always", duration="5", exit_code="7")), 6)
    (status,) = life.status()["containerStatuses"]
    assert status["state"] == {"waiting": {"reason": "CrashLoopBackOff"}}
    assert status["lastState"]["terminated"]["exitCode"] == 7
    assert (status["ready"], condition(life, "Ready")) == (False, "False")


def test_init_containers_run_one_after_the_other_then_the_apps():
    life = a_life(a_pod(inits=[INIT, INIT | {"name": "second"}], init_duration="10"))
    assert (life.phase, states(life, "initContainerStatuses")) == (
        "Pending",
        ["running", "waiting"],
    )
    assert states(at(life, 10), "initContainerStatuses") == ["terminated 0", "running"]
    assert (states(life), condition(life, "Initialized")) == (["waiting"], "False")
    assert states(at(life, 20), "initContainerStatuses") == ["terminated 0", "terminated 0"]
    assert (life.phase, states(life)) == ("Running", ["running"])
    assert condition(life, "Initialized") == condition(life, "Ready") == "True"


def test_the_accounting_sees_when_the_init_containers_are_done():
    pod = a_pod(inits=[INIT, SIDECAR], init_duration="10")
    life = a_life(pod)
    for second, finished in ((9, False), (10, True)):
        status = at(life, second).status()
        seen = msgspec.convert({**msgspec.to_builtins(pod), "status": status}, LivePod)
        assert seen.init_finished is finished


def test_a_sidecar_starts_before_the_next_init_container_and_stays_with_the_apps():
    life = a_life(a_pod(inits=[SIDECAR, INIT], init_duration="10", duration="5"))
    assert states(life, "initContainerStatuses") == ["running", "running"]
    assert states(at(life, 12), "initContainerStatuses") == ["running", "terminated 0"]
    assert (at(life, 15).phase, life.over) == ("Succeeded", True)
    assert states(life, "initContainerStatuses") == ["terminated 143", "terminated 0"]


@pytest.mark.parametrize(
    ("policy", "phase", "init"),
    [("Never", "Failed", "terminated 1"), ("OnFailure", "Pending", "waiting")],
)
def test_a_failed_init_container(policy, phase, init):
    life = a_life(a_pod(inits=[INIT], policy=policy, init_exit_code="1"))
    assert (life.phase, states(life, "initContainerStatuses")) == (phase, [init])


def test_a_pod_succeeds_when_its_last_container_does():
    life = at(a_life(a_pod(apps=("a", "b"), duration="5")), 5)
    assert (life.phase, states(life)) == ("Succeeded", ["terminated 0", "terminated 0"])


def test_the_active_deadline_fails_the_pod():
    life = at(a_life(a_pod(deadline=30, policy="Always")), 30)
    assert (life.phase, life.status()["reason"]) == ("Failed", "DeadlineExceeded")
    assert life.next_at is None


@pytest.mark.parametrize(
    ("stop", "grace", "ends"),
    [
        ("0", None, 0),
        ("10", None, 10),
        ("10", 4, 4),
        ("100", None, 30),
        ("10", 0, 0),
    ],
)
def test_a_deleted_pod_stops_within_its_grace_period(stop, grace, ends):
    life = at(a_life(a_pod(stop_duration=stop, policy="Always")), 0.5)
    life.stop(BEGIN + 0.5, grace)
    if ends:
        assert not at(life, ends + 0.4).over
    assert at(life, ends + 0.5).over
    assert life.next_at is None


def test_a_stopping_container_may_end_by_itself_and_is_not_started_again():
    life = a_life(a_pod(stop_duration="20", duration="5", policy="Always"))
    life.stop(BEGIN, None)
    assert (at(life, 6).over, states(life)) == (True, ["terminated 0"])


def test_a_second_deletion_can_only_shorten_the_grace():
    life = a_life(a_pod(stop_duration="20"))
    life.stop(BEGIN, 30)
    life.stop(BEGIN + 1, 0)
    assert life.over


@pytest.mark.parametrize(
    ("key", "text"),
    [("duration", "soon"), ("exit_code", "-1"), ("exit_code", "256"), ("stop_duration", "x")],
)
def test_an_annotation_that_cannot_be_read_fails_the_pod_and_says_why(key, text):
    life = a_life(a_pod(**{key: text}))
    status = life.status()
    assert (status["phase"], status["reason"]) == ("Failed", "BadSimulation")
    assert f"hami.io/sim-{key.replace('_', '-')}: '{text}'" in status["message"]


def test_a_life_led_again_up_to_now_is_the_same():
    pod = a_pod(inits=[SIDECAR, INIT], init_duration="3", duration="5", policy="OnFailure")
    steady, late = a_life(pod), a_life(pod)
    for second in range(8):
        at(steady, second)
    assert at(late, 7).status() == steady.status()


# Where somebody else admits and starts.


def a_staged(pod: LivePod) -> Life:
    return Life(pod, begin=BEGIN, address="10.0.0.1", staged=True)


def test_a_staged_pod_waits_until_it_is_admitted_and_its_containers_are_started():
    life = a_staged(a_pod(apps=("a", "b")))
    assert (life.phase, life.wanted, life.admitted) == ("Pending", [], False)
    life.admit(BEGIN)
    assert (life.phase, life.wanted, states(life)) == ("Pending", ["a", "b"], ["waiting"] * 2)
    life.started("b", "x://1", BEGIN + 1)
    assert (life.phase, life.wanted, life.running) == ("Running", ["a"], {"b"})
    life.started("a", "x://2", BEGIN + 2)
    assert [s["containerID"] for s in life.status()["containerStatuses"]] == ["x://2", "x://1"]


def test_staged_containers_are_wanted_in_kubelets_order():
    life = a_staged(a_pod(inits=[SIDECAR, INIT], apps=("a",), init_duration="5"))
    life.admit(BEGIN)
    assert life.wanted == ["sidecar"]
    life.started("sidecar", "x://1", BEGIN)
    assert life.wanted == ["init"]
    life.started("init", "x://2", BEGIN)
    assert life.wanted == []
    assert at(life, 5).wanted == ["a"]


def test_a_container_that_was_refused_says_why_and_is_wanted_again_later():
    life = a_staged(a_pod())
    life.admit(BEGIN)
    life.refused("main", "CreateContainerError", "no spec", BEGIN + 10)
    assert (life.wanted, life.next_at) == ([], BEGIN + 10)
    said = {"waiting": {"reason": "CreateContainerError", "message": "no spec"}}
    assert life.status()["containerStatuses"][0]["state"] == said
    assert at(life, 10).wanted == ["main"]
    assert life.status()["containerStatuses"][0]["state"] == said


def test_a_rejected_pod_has_failed_and_what_ran_of_it_is_ended():
    life = a_staged(a_pod(apps=("a", "b")))
    life.admit(BEGIN)
    life.started("a", "x://1", BEGIN)
    life.reject("UnexpectedAdmissionError", "Pod was rejected: x", BEGIN + 1)
    assert (life.phase, life.over, life.wanted, life.running) == ("Failed", True, (), frozenset())
    assert life.status()["reason"] == "UnexpectedAdmissionError"
    assert states(life) == ["terminated 137", "waiting"]


def test_nothing_of_a_pod_that_is_told_to_stop_is_wanted():
    life = a_staged(a_pod(stop_duration="3"))
    life.admit(BEGIN)
    life.stop(BEGIN + 1, None)
    assert (life.wanted, at(life, 4).over) == ((), True)


def test_a_container_that_ended_is_wanted_again_after_its_back_off():
    life = Life(
        a_pod(policy="Always", duration="1"), begin=BEGIN, address="", staged=True, backoff=2.0
    )
    life.admit(BEGIN)
    life.started("main", "x://1", BEGIN)
    assert at(life, 2.9).wanted == []
    assert at(life, 3).wanted == ["main"]
