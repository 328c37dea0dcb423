"""What happens to a pod when it is created: taken in, changed, denied, or none of our business."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hami.domain.admission import Admission, Denied
from hami.domain.kubernetes.objects import (
    Container,
    EnvVar,
    Metadata,
    Pod,
    PodSpec,
    Resources,
    SecurityContext,
    VolumeMount,
)
from hami.hookspecs import hookimpl
from hami.policy.pods.admission import AdmissionSettings, Admitted, NotOurs, admit
from hami.policy.profile.profile_vendor import ProfileVendor
from hami.policy.quota import QuotaLedger
from hami.vendors.registry import Vendors

from ..builders import (
    ACME_YAML,
    BOLT_YAML,
    SHORT,
    a_container,
    a_grant,
    a_pod,
    a_quota,
    an_allocation,
    the_vendors,
)

OURS = "hami-scheduler"


class Changing(ProfileVendor):
    """ACME, with this answer for every container that asks for it."""

    def __init__(self, answer: Any) -> None:
        super().__init__(ACME_YAML)
        self.answer = answer

    @hookimpl
    def hami_admit(self, container: Container) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer if "acme.com/gpu" in container.limits else Admission()


def changing(answer: Any) -> Vendors:
    return Vendors.of({"acme": Changing(answer), "bolt": ProfileVendor(BOLT_YAML)})


def outcome(pod: Pod, *, vendors: Vendors | None = None, ledger: QuotaLedger | None = None, **settings: Any):  # fmt: skip
    vendors = vendors or the_vendors()
    return admit(pod, vendors, AdmissionSettings(**settings), ledger or QuotaLedger(vendors))


def admitted(pod: Pod, **how: Any) -> Pod:
    found = outcome(pod, **how)
    assert isinstance(found, Admitted), found
    return found.pod


def denied(pod: Pod, **how: Any) -> str:
    found = outcome(pod, **how)
    assert isinstance(found, Denied), found
    return found.text


def with_spec(pod: Pod, **fields: Any) -> Pod:
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, **fields))


def privileged(container: Container) -> Container:
    return msgspec.structs.replace(container, security_context=SecurityContext(privileged=True))


def mounting(container: Container, path: str) -> Container:
    return msgspec.structs.replace(container, volume_mounts=[VolumeMount(mount_path=path)])


ASKING, PLAIN = a_pod(gpu=1, mem=100), a_pod()


# Whose pod it is.


@pytest.mark.parametrize(
    ("named", "settings", "expected"),
    [
        pytest.param("", {}, OURS, id="no scheduler: ours"),
        pytest.param("default-scheduler", {}, OURS, id="the default one: ours"),
        pytest.param(OURS, {}, OURS, id="ours already"),
        pytest.param("volcano", {}, None, id="another's"),
        pytest.param("default-scheduler", {"take_default_scheduler": False}, None, id="the default one is left alone"),
        pytest.param("", {"take_default_scheduler": False}, OURS, id="no scheduler is still ours"),
        pytest.param("", {"scheduler_name": "mine"}, "mine", id="under another name"),
        pytest.param(OURS, {"scheduler_name": "mine"}, None, id="the usual name is then another's"),
        pytest.param("", {"scheduler_name": ""}, "", id="no name configured: left as it is"),
        pytest.param("default-scheduler", {"scheduler_name": ""}, "default-scheduler", id="no name configured: the default stays"),
    ],
)  # fmt: skip
def test_scheduler(named, settings, expected):
    found = outcome(with_spec(ASKING, scheduler_name=named), **settings)
    assert (None if isinstance(found, NotOurs) else found.pod.spec.scheduler_name) == expected


def test_another_schedulers_pod_is_told_so_and_left_alone_whatever_it_says():
    pod = with_spec(a_pod(gpu=-1), scheduler_name="volcano", node_name="n1")
    assert outcome(pod) == NotOurs("pod already has a different scheduler: volcano")


@pytest.mark.parametrize("pod", [PLAIN, a_pod(gpu=0), a_pod("p", Container(name="a"))])
def test_a_pod_without_devices_goes_on_unchanged(pod):
    assert admitted(pod) is pod


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(with_spec(PLAIN, node_name="n1"), id="on a chosen node"),
        pytest.param(a_pod("p", privileged(a_container("a"))), id="privileged"),
        pytest.param(
            a_pod("p", mounting(a_container("a"), "/run/hami")), id="with a volume at /run"
        ),
    ],
)
def test_a_pod_without_devices_may_do_as_it_likes(pod):
    assert admitted(pod) is pod


# What is denied.


@pytest.mark.parametrize(
    ("pod", "text"),
    [
        pytest.param(Pod(spec=PodSpec(containers=[])), "pod has no containers", id="no containers"),
        pytest.param(with_spec(ASKING, node_name="n1"), "pod has node assigned: spec.nodeName skips the scheduler that hands out devices; use spec.nodeSelector", id="a node chosen past the scheduler"),
        pytest.param(a_pod("p", privileged(a_container("a", gpu=1))), "container a is privileged", id="fix: a privileged container with devices"),
        pytest.param(a_pod("p", a_container("a", gpu=1), privileged(a_container("b"))), "container b is privileged", id="a privileged container beside devices"),
        pytest.param(a_pod("p", a_container("a", gpu=1), init=[privileged(a_container("i"))]), "container i is privileged", id="a privileged init container"),
        pytest.param(a_pod("p", mounting(a_container("a", gpu=1), "/var/run/hami/acme/limits")), "container a mounts a volume at /var/run/hami/acme/limits, over the limits of its slice at /run/hami; mount it elsewhere", id="a file of its own over its limits page"),
        pytest.param(a_pod("p", a_container("a", gpu=1), mounting(a_container("b"), "/run/hami/acme/")), "container b mounts a volume at /run/hami/acme/, over the limits of its slice at /run/hami; mount it elsewhere", id="a helper that shares the folder of the page"),
        pytest.param(a_pod("p", a_container("a", gpu="1.5")), "container a: acme.com/gpu: '1.5' is not a whole number", id="fix: half a device"),
        pytest.param(a_pod("p", a_container("a", gpu=-1)), "container a: acme.com/gpu: '-1' is negative", id="fix: less than none"),
        pytest.param(a_pod("p", a_container("a", gpu=1, mem="16Gi!")), "container a: acme.com/mem: '16Gi!' is not a quantity", id="fix: no quantity"),
        pytest.param(a_pod("p", a_container("a", gpu=1, mem="500M")), "container a: acme.com/mem: '500M' is 500000000 MiB, more than any device has (500M counts MiB; write 500Mi for bytes)", id="fix: a slip of the unit, with the remedy"),
        pytest.param(a_pod("p", a_container("a", npu=1, npumem="-1Gi")), "container a: bolt.io/mem: '-1Gi' is negative", id="another vendor's"),
        pytest.param(a_pod("p", a_container("a"), init=[a_container("i", gpu="x")]), "container i: acme.com/gpu: 'x' is not a quantity", id="in an init container"),
        pytest.param(a_pod("p", a_container("a", gpu=1025)), "container a: acme.com/gpu: 1025 is more than the 1024 allowed", id="more than any node"),
    ],
)  # fmt: skip
def test_denied(pod, text):
    assert denied(pod) == text


@pytest.mark.parametrize(
    ("pod", "memory"),
    [
        pytest.param(a_pod(gpu=1, mem="3k"), 3000, id="fix: as the API server rewrites 3000"),
        pytest.param(
            a_pod(gpu=1, mem="16Gi"), 16384, id="fix: bytes are a request and not nothing"
        ),
        pytest.param(a_pod(npu=1, npumem="3k"), 768_000, id="in another vendor's units"),
    ],
)
def test_readings(pod, memory):
    found = outcome(pod)
    assert found.request.containers[0].requests[0].memory_mib == memory


def test_the_request_that_is_handed_on_is_that_of_the_pod_as_it_goes_on():
    found = outcome(ASKING)
    assert found.request.pod is found.pod
    assert found.request.vendors == ("ACME",)


# What a tenant must not write.


WRITTEN = [
    "hami.io/vgpu-node",
    "hami.io/vgpu-time",
    "hami.io/bind-phase",
    "hami.io/bind-time",
    "hami.io/allocation-signature",
    "hami.io/allocated-gpucores-limit",
    "acme.com/to-allocate",
    "acme.com/allocated",
    "bolt.io/allocated",
    "whole.io/allocated",
]


@pytest.mark.parametrize("pod", [ASKING, PLAIN], ids=["with devices", "without"])
def test_allocation_annotations_are_stripped_and_others_stay(pod):
    mine = {"acme.com/use-type": "One", "example.com/a": "1"}
    forged = mine | dict.fromkeys(WRITTEN, "forged")
    metadata = msgspec.structs.replace(pod.metadata, annotations=forged)
    assert admitted(msgspec.structs.replace(pod, metadata=metadata)).annotations == mine


def test_what_a_vendor_writes_besides_is_stripped_too():
    yaml = ACME_YAML.replace("    allocated:", "    also_written: [acme.com/seat]\n    allocated:")
    pod = a_pod(annotations={"acme.com/seat": "forged"}, gpu=1)
    assert admitted(pod, vendors=Vendors.of({"acme": ProfileVendor(yaml)})).annotations == {}


# What vendors change.


def a_written(name: str = "c", limits: Any = None, requests: Any = None, env: Any = None) -> Container:  # fmt: skip
    return Container(
        name=name,
        resources=Resources(limits=limits, requests=requests),
        env=[EnvVar(name=n, value=v) for n, v in env.items()] if env else None,
    )


GPU = {"acme.com/gpu": "1"}


@pytest.mark.parametrize(
    ("answer", "env", "expected"),
    [
        pytest.param({"A": "1"}, {}, [("A", "1")], id="added"),
        pytest.param({"A": "1"}, {"B": "2"}, [("B", "2"), ("A", "1")], id="added behind"),
        pytest.param({"A": "1"}, {"A": "1", "B": "2"}, [("A", "1"), ("B", "2")], id="fix: set alike already: not added again"),
        pytest.param({"A": "1"}, {"A": "0", "B": "2"}, [("A", "1"), ("B", "2")], id="overwritten in its place"),
        pytest.param({}, {"A": "0"}, [("A", "0")], id="nothing to set"),
    ],
)  # fmt: skip
def test_env(answer, env, expected):
    pod = a_pod("p", a_written(limits=GPU, env=env))
    container = admitted(pod, vendors=changing(Admission(env=answer))).spec.containers[0]
    assert [(v.name, v.value) for v in container.env] == expected


def test_limits_and_requests_are_added_to_those_that_are_there():
    answer = Admission(limits={"acme.com/cores": "100"}, requests={"acme.com/cores": "100"})
    pod = a_pod("p", a_written(limits=GPU, requests={"cpu": "1"}))
    container = admitted(pod, vendors=changing(answer)).spec.containers[0]
    assert container.limits == {"acme.com/gpu": "1", "acme.com/cores": "100"}
    assert container.requests == {"cpu": "1", "acme.com/cores": "100"}


def test_what_a_vendor_sets_is_what_the_pod_asks_for():
    answer = Admission(limits={"acme.com/gpu": "3"})
    found = outcome(ASKING, vendors=changing(answer))
    assert found.request.containers[0].requests[0].count == 3


@pytest.mark.parametrize(
    ("former", "expected"),
    [
        pytest.param(None, "acme", id="none yet"),
        pytest.param("kata", "kata", id="the author's choice stays"),
    ],
)
def test_runtime_class(former, expected):
    pod = with_spec(ASKING, runtime_class_name=former)
    found = admitted(pod, vendors=changing(Admission(runtime_class="acme")))
    assert found.spec.runtime_class_name == expected


def test_pod_annotations_of_a_vendor_join_those_of_the_author():
    pod = a_pod(annotations={"a": "1"}, gpu=1)
    found = admitted(pod, vendors=changing(Admission(pod_annotations={"b": "2", "a": "3"})))
    assert found.annotations == {"a": "3", "b": "2"}


def test_only_the_container_that_asks_is_changed_and_each_keeps_its_place():
    pod = a_pod(
        "p",
        a_container("plain"),
        a_container("asks", gpu=1),
        init=[a_container("i", gpu=1), a_container("s", restart="Always")],
    )
    found = admitted(pod, vendors=changing(Admission(env={"A": "1"})))
    assert [(c.name, kind.value, bool(c.env)) for c, kind in found.each_container()] == [
        ("i", "init", True),
        ("s", "sidecar", False),
        ("plain", "app", False),
        ("asks", "app", True),
    ]
    assert found.spec.containers[0] is pod.spec.containers[0]


def test_a_later_vendor_sees_what_the_former_set():
    seen = []

    class Looking(ProfileVendor):
        @hookimpl
        def hami_admit(self, container: Container, profile: Any) -> Admission:
            if profile.key == "BOLT":
                seen.append(dict(container.limits))
            return Admission()

    answer = Admission(limits={"acme.com/cores": "7"})
    vendors = Vendors.of({"acme": Changing(answer), "bolt": Looking(BOLT_YAML)})
    admitted(ASKING, vendors=vendors)
    assert [limits["acme.com/cores"] for limits in seen] == ["7"]


@pytest.mark.parametrize(
    ("yaml", "pod", "count"),
    [
        pytest.param("  default_count: 1\n", a_pod(mem=100), "1", id="memory alone implies a device"),
        pytest.param("  default_count: 2\n", a_pod(cores=10), "2", id="cores alone imply as many as configured"),
        pytest.param("  default_count: 1\n", a_pod(gpu=3, mem=100), "3", id="a count stays"),
        pytest.param("  default_count: 1\n", a_pod(), None, id="nothing implies nothing"),
        pytest.param("", a_pod(mem=100), None, id="without a default nothing is implied"),
    ],
)  # fmt: skip
def test_an_implied_count(yaml, pod, count):
    vendors = Vendors.of({"acme": ProfileVendor(ACME_YAML + yaml)})
    found = admitted(pod, vendors=vendors)
    assert found.spec.containers[0].limits.get("acme.com/gpu") == count
    assert found.spec.scheduler_name == (OURS if count else "")


def test_a_vendor_may_deny():
    assert denied(ASKING, vendors=changing(Denied("no such thing"))) == "no such thing"


def test_a_vendor_that_fails_denies_and_is_named():
    text = denied(ASKING, vendors=changing(ValueError("boom")))
    assert text == "acme: hami_admit of vendor ACME failed: ValueError: boom"


# Quota.


def using(memory: int, **limits: object) -> QuotaLedger:
    """A ledger with one quota, of whose memory so much is used."""
    ledger = QuotaLedger(the_vendors())
    ledger.set_quota(a_quota(**limits))
    ledger.charge(a_pod("other"), an_allocation("n1", a_grant(memory=memory)))
    return ledger


INITS = [a_container("i", gpu=1, mem=800), a_container("j", gpu=1, mem=800)]
LARGE_INIT = [a_container("i", gpu=1, mem=1500)]


@pytest.mark.parametrize(
    ("pod", "deny", "impossible"),
    [
        pytest.param(a_pod(gpu=1, mem=100), True, True, id="it fits"),
        pytest.param(a_pod(gpu=1, mem=1000), True, True, id="it fits exactly"),
        pytest.param(a_pod(gpu=1, mem=1024), False, True, id="not now, but one day"),
        pytest.param(a_pod(gpu=2, mem=1024), False, False, id="fix: two devices of 1024 can never fit 2000"),
        pytest.param(a_pod(gpu=2, mem=400), True, True, id="two devices of 400"),
        pytest.param(a_pod("p", a_container(gpu=1, mem=500), init=INITS), True, True, id="init containers run one after the other"),
        pytest.param(a_pod("p", a_container(gpu=1, mem=100), init=LARGE_INIT), False, True, id="the init container is the peak"),
        pytest.param(a_pod(npu=1, npumem=9999), True, True, id="another vendor's memory"),
        pytest.param(a_pod(gpu=1, pct=100), True, True, id="a percentage is not known yet"),
        pytest.param(a_pod(gpu=1), True, True, id="nor is a whole device"),
        pytest.param(a_pod(gpu=1, mem=5000, namespace="elsewhere"), True, True, id="another namespace"),
        pytest.param(PLAIN, True, True, id="no devices"),
    ],
)  # fmt: skip
def test_quota_of_which_half_is_used(pod, deny, impossible):
    for mode, expected in (("deny", deny), ("impossible", impossible), ("pending", True)):
        found = outcome(pod, ledger=using(1000, mem=2000), quota=mode)
        assert isinstance(found, Admitted) is expected, mode


@pytest.mark.parametrize(
    ("limits", "pod", "expected"),
    [
        pytest.param({"npumem": 100}, a_pod(npu=1, npumem=50), True, id="50 units of 100"),
        pytest.param({"npumem": 100}, a_pod(npu=1, npumem=200), False, id="200 units of 100"),
        pytest.param({"npumem": 60}, a_pod(npu=2, npumem=40), False, id="two times 40 units of 60"),
        pytest.param(
            {"npucores": 50}, a_pod(npu=1, npumem=1, npucores=60), False, id="60 of 50 percent"
        ),
        pytest.param({"gpu": 1}, a_pod(gpu=2, pct=1), False, id="fix: two devices of one allowed"),
        pytest.param({"card": 0}, a_pod(card=1), False, id="an explicit 0"),
    ],
)
def test_what_no_quota_could_ever_admit(limits, pod, expected):
    assert isinstance(outcome(pod, ledger=using(0, **limits)), Admitted) is expected


@pytest.mark.parametrize("mode", ["deny", "impossible"])
def test_a_denial_names_the_numbers(mode):
    text = denied(a_pod(gpu=2, mem=3000), ledger=using(1000, mem=4000), quota=mode)
    assert text == (
        "exceeding resource quota: ResourceQuota default/q: limits.acme.com/mem: "
        "used 1000 MiB + asked 6000 MiB > limit 4000 MiB"
    )


def test_admission_charges_nothing_however_often_it_is_asked():
    ledger = using(0, mem=1000)
    for _ in range(3):
        assert isinstance(outcome(a_pod(gpu=1, mem=1000), ledger=ledger, quota="deny"), Admitted)
    assert ledger.used("default", "q") == {"acme.com/mem": 0}


def test_a_pod_that_is_admitted_again_is_not_counted_against_itself():
    ledger = using(0, mem=1000)
    pod = a_pod("p", gpu=1, mem=1000)
    assert not ledger.reserve(pod, an_allocation("n1", a_grant(memory=1000)))
    assert isinstance(outcome(pod, ledger=ledger, quota="deny"), Admitted)


# Laws.

texts = st.sampled_from(["0", "1", "2", "4", "50", "100", "1k", "-1"])
asks = st.dictionaries(st.sampled_from(list(SHORT)), texts, max_size=4)
containers = st.builds(
    lambda name, ask, env, restart: Container(
        name=name,
        resources=Resources(limits={SHORT[k]: v for k, v in ask.items()}),
        env=[EnvVar(name=n, value=n) for n in env],
        restart_policy=restart,
    ),
    st.sampled_from("abc"), asks, st.sets(st.sampled_from("ABC")), st.sampled_from([None, "Always"]),
)  # fmt: skip
pods = st.builds(
    lambda apps, inits, annotations: Pod(
        metadata=Metadata(name="p", uid="u", annotations=annotations),
        spec=PodSpec(containers=apps, init_containers=inits),
    ),
    st.lists(containers, min_size=1, max_size=2),
    st.none() | st.lists(containers, max_size=2),
    st.none() | st.dictionaries(st.sampled_from([*WRITTEN, "mine"]), st.just("1"), max_size=3),
)
VENDORS = changing(
    Admission(
        env={"A": "1", "Z": "2"},
        limits={"acme.com/cores": "10"},
        pod_annotations={"acme.com/note": "1"},
        runtime_class="acme",
    )
)


@given(pod=pods)
def test_admitting_the_result_once_more_changes_nothing(pod):
    first = outcome(pod, vendors=VENDORS)
    if isinstance(first, Admitted):
        assert outcome(first.pod, vendors=VENDORS) == first


@given(pod=pods)
def test_a_pod_keeps_everything_that_no_rule_is_about(pod):
    found = outcome(pod, vendors=VENDORS)
    if isinstance(found, Admitted):
        before, after = list(pod.each_container()), list(found.pod.each_container())
        assert [(c.name, kind) for c, kind in after] == [(c.name, kind) for c, kind in before]
        for (new, _), (old, _) in zip(after, before, strict=True):
            assert {v.name for v in old.env} <= {v.name for v in new.env}
            assert set(old.limits) <= set(new.limits)
        assert found.pod.annotations.get("mine") == pod.annotations.get("mine")
