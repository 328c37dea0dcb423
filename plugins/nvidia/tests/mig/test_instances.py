"""MIG instances on a node: made, found again, shared within a pod, destroyed, cleaned up."""

import threading
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from pathlib import Path

import pytest
from hami_nvidia.mig.claims import InstanceClaim, Owner, claims_of
from hami_nvidia.mig.instances import InstanceRefused, Instances
from hami_nvidia.nvml.interface import GpuLost, NvmlAway, NvmlFailed, Span
from hami_nvidia.schedule.mig_placement import MIG_INSTANCE
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hami.domain.allocations import ContainerKind
from hami.domain.devices import Grant
from hami.domain.extra import NO_EXTRA
from hami.domain.slices import Slice

from ..builders import an_instance
from ..hardware_builders import bring_back, lose, simulated, take_driver_away, uuids

SIZES = {"1g.5gb": 1, "2g.10gb": 2, "3g.20gb": 4, "4g.20gb": 4, "7g.40gb": 8}


class Node:
    """A node in mode mig; ``restarted`` is the agent's next life on the same hardware."""

    def __init__(self, folder, gpus=None):
        self.nvml = simulated(folder, gpus or [{"model": "a100-40g", "count": 2, "mig": True}])
        self.instances = Instances(self.nvml)

    def restarted(self):
        """What is in the file is all that lasts."""
        later = copy(self)
        later.instances = Instances(self.nvml)
        return later

    def claim(self, place, slice="a", pod=None, gpu=0):
        """``claim("1g.5gb@3")``."""
        return claims_of(self.slice(slice, place, pod=pod, gpu=gpu))[0]

    def slice(self, id, *places, pod=None, gpu=0):
        grants = []
        for place in places:
            name, _, start = place.partition("@")
            instance = an_instance(name, int(start), SIZES.get(name, 1))
            grants.append(
                Grant(
                    device_id=uuids(self.nvml)[gpu],
                    vendor="NVIDIA",
                    extra=NO_EXTRA.with_(MIG_INSTANCE, instance),
                )
            )
        return Slice(
            id=id, vendor="NVIDIA", pod_uid=pod or f"pod-{id}", namespace="ns", pod=pod or f"pod-{id}",
            container="c", kind=ContainerKind.APP, grants=tuple(grants), state_dir=Path("/nowhere"),
        )  # fmt: skip

    def ensure(self, *args, **rest):
        return self.instances.ensure(self.claim(*args, **rest))

    def release(self, claim, identity=None):
        self.instances.release(claim, identity)

    def places(self, gpu=0):
        """``{"1g.5gb@3"}``: what is on the GPU."""
        uuid = uuids(self.nvml)[gpu]
        kinds = {kind.id: kind.name for kind in self.nvml.instance_profiles(uuid)}
        return {f"{kinds[i.profile_id]}@{i.span.start}" for i in self.nvml.instances(uuid)}

    def foreign(self, place, gpu=0, *, compute=True):
        """An instance that somebody else made; its MIG device."""
        name, _, start = place.partition("@")
        uuid = uuids(self.nvml)[gpu]
        kind = next(k for k in self.nvml.instance_profiles(uuid) if k.name == name)
        span = next(s for s in kind.spans if s.start == int(start))
        made = self.nvml.create_instance(uuid, kind, span)
        if compute:
            self.nvml.create_compute(uuid, made)
        return next((d for d in self.nvml.mig_devices(uuid) if d.gpu_instance == made), None)

    def runs_on(self, *devices):
        with self.nvml.state.changing() as state:
            state.busy = list(devices)

    def fails(self, request, text="Unknown Error"):
        with self.nvml.state.changing() as state:
            state.failing = {request: text} if text else {}


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)


# Making.


def test_an_instance_is_made_where_the_scheduler_chose(node):
    made = node.ensure("2g.10gb@4")
    (device,) = node.nvml.mig_devices(uuids(node.nvml)[0])
    assert node.places() == {"2g.10gb@4"}
    assert (made.mig_uuid, made.gpu_instance, made.compute_instance) == (
        device.uuid, device.gpu_instance, 0
    )  # fmt: skip
    assert (made.gpu, made.profile, made.placement.start) == (uuids(node.nvml)[0], "2g.10gb", 4)


def test_it_is_the_same_each_time(node):
    assert node.ensure("1g.5gb@6") == node.ensure("1g.5gb@6")
    assert node.places() == {"1g.5gb@6"}


def test_a_restarted_agent_finds_it(node):
    made = node.ensure("1g.5gb@6")
    later = node.restarted()
    assert later.instances.reconcile(uuids(node.nvml), [later.slice("a", "1g.5gb@6")]) == ()
    assert later.ensure("1g.5gb@6") == made


def test_a_restarted_agent_finds_it_although_nobody_told_it(node):
    made = node.ensure("1g.5gb@6")
    assert node.restarted().ensure("1g.5gb@6") == made


@pytest.mark.parametrize(
    ("name", "start", "profile"),
    [
        pytest.param("1g.12gb", 3, "1g.5gb", id="a name of the allow list, by its slices"),
        pytest.param("3g.20gb", 4, "3g.20gb", id="NVIDIA's own name"),
    ],
)
def test_names_are_those_of_the_allow_list(node, name, start, profile):
    size = SIZES[profile]
    claim = InstanceClaim(
        gpu=uuids(node.nvml)[0], instance=an_instance(name, start, size),
        owner=Owner(slice_id="a", pod_uid="p", name="n"),
    )  # fmt: skip
    assert node.instances.ensure(claim).profile == name
    assert node.places() == {f"{profile}@{start}"}


@pytest.mark.parametrize(
    ("place", "message"),
    [
        pytest.param("2g.10gb@1", "has no such instance", id="a start that NVML does not know"),
        pytest.param("5g.25gb@0", "has no such instance", id="a profile that does not exist"),
    ],
)
def test_what_the_gpu_does_not_have_is_refused(node, place, message):
    with pytest.raises(InstanceRefused, match=message):
        node.ensure(place)
    assert node.places() == set()


def test_without_mig_nothing_is_made(tmp_path):
    node = Node(tmp_path, "a100-40g")
    with pytest.raises(InstanceRefused, match="MIG is off"):
        node.ensure("1g.5gb@0")


@pytest.mark.parametrize("request_", ["create_instance", "create_compute", "mig_devices"])
def test_what_was_made_is_taken_back_when_it_cannot_be_finished(node, request_):
    node.fails(request_)
    with pytest.raises(NvmlFailed, match=request_):
        node.ensure("1g.5gb@0")
    node.fails("nothing", "")
    assert node.places() == set()
    assert node.ensure("3g.20gb@0", "b"), "the place is nobody's"


def test_what_cannot_be_taken_back_is_told_and_finished_later(node):
    node.nvml.destroy_instance = lambda gpu, id: (_ for _ in ()).throw(NvmlFailed("In use"))
    node.fails("create_compute")
    with pytest.raises(NvmlFailed, match="create_compute") as caught:
        node.ensure("1g.5gb@0")
    assert caught.value.__notes__ == ["what was made of it is still there: In use"]
    node.fails("nothing", "")
    assert node.ensure("1g.5gb@0").compute_instance == 0


def test_one_that_was_left_half_made_is_finished(node):
    node.foreign("7g.40gb@0", compute=False)
    made = node.ensure("7g.40gb@0")
    assert (made.gpu_instance, made.compute_instance) == (0, 0)


# Who has it.


def test_two_containers_of_one_pod_may_have_the_very_same(node):
    assert node.ensure("1g.5gb@0", "init", "p") == node.ensure("1g.5gb@0", "app", "p")


@pytest.mark.parametrize(
    ("place", "pod"),
    [
        pytest.param("1g.5gb@0", "other", id="the same, for another pod"),
        pytest.param("3g.20gb@0", "other", id="a larger one, for another pod"),
        pytest.param("3g.20gb@0", "p", id="a larger one, for the same pod"),
    ],
)
def test_a_place_that_a_slice_still_has_is_refused(node, place, pod):
    node.ensure("1g.5gb@0", "a", "p")
    with pytest.raises(InstanceRefused, match="still belongs to ns/p, container c"):
        node.ensure(place, "b", pod)
    assert node.places() == {"1g.5gb@0"}


def test_it_is_free_after_the_release(node):
    former = node.claim("1g.5gb@0", "a")
    node.release(former, node.instances.ensure(former))
    node.ensure("3g.20gb@0", "b")
    assert node.places() == {"3g.20gb@0"}


def test_an_idle_instance_of_nobody_makes_way(node):
    node.foreign("1g.5gb@1")
    node.ensure("2g.10gb@0")
    assert node.places() == {"2g.10gb@0"}


@pytest.mark.parametrize("place", ["2g.10gb@0", "1g.5gb@1"])
def test_a_used_instance_of_nobody_does_not(node, place):
    node.runs_on(node.foreign("1g.5gb@1").uuid)
    with pytest.raises(InstanceRefused, match="a process still uses"):
        node.ensure(place)
    assert node.places() == {"1g.5gb@1"}


def test_instances_beside_it_are_left_alone(node):
    node.foreign("1g.5gb@6")
    node.foreign("1g.5gb@0", gpu=1)
    node.ensure("2g.10gb@0")
    assert node.places() == {"1g.5gb@6", "2g.10gb@0"}
    assert node.places(1) == {"1g.5gb@0"}


# Releasing.


def test_released_twice_is_released_once(node):
    claim = node.claim("1g.5gb@0")
    made = node.instances.ensure(claim)
    node.release(claim, made)
    node.release(claim, made)
    assert node.places() == set()


def test_a_claim_that_was_never_made_is_released(node):
    node.release(node.claim("1g.5gb@0"))
    node.release(node.claim("5g.25gb@0"))


def test_without_its_identity_the_place_must_do(node):
    claim = node.claim("1g.5gb@0")
    node.instances.ensure(claim)
    node.restarted().release(claim, None)
    assert node.places() == set()


def test_the_last_of_a_pod_destroys(node):
    first, last = node.claim("1g.5gb@0", "init", "p"), node.claim("1g.5gb@0", "app", "p")
    made = [node.instances.ensure(claim) for claim in (first, last)]
    node.release(first, made[0])
    assert node.places() == {"1g.5gb@0"}
    node.release(last, made[1])
    assert node.places() == set()


def test_one_that_is_still_used_stays_and_keeps_its_place(node):
    claim = node.claim("1g.5gb@0")
    made = node.instances.ensure(claim)
    node.runs_on(made.mig_uuid)
    with pytest.raises(InstanceRefused, match="a process still uses"):
        node.release(claim, made)
    with pytest.raises(InstanceRefused, match="still belongs"):
        node.ensure("1g.5gb@0", "b")
    node.runs_on()
    node.release(claim, made)
    assert node.places() == set()


def test_an_id_that_another_instance_has_now_is_not_destroyed(node):
    """An instance is called what the last one at its place was called, whatever its kind."""
    claim = node.claim("4g.20gb@0")
    made = node.instances.ensure(claim)
    uuid = uuids(node.nvml)[0]
    node.nvml.destroy_compute(uuid, made.gpu_instance, 0)
    node.nvml.destroy_instance(uuid, made.gpu_instance)
    other = node.foreign("3g.20gb@0")
    assert (other.gpu_instance, other.uuid) == (made.gpu_instance, made.mig_uuid)
    node.release(claim, made)
    assert node.places() == {"3g.20gb@0"}


def test_the_same_place_under_another_uuid_is_somebody_elses(node):
    claim = node.claim("1g.5gb@0")
    made = node.instances.ensure(claim)
    node.release(claim, made)
    node.foreign("1g.5gb@0")
    with node.nvml.state.changing() as state:
        state.gpu(made.gpu).instances[0].compute[0].uuid = "MIG-other"
    node.release(claim, made)
    assert node.places() == {"1g.5gb@0"}


def test_a_lost_gpu_keeps_the_claim_until_it_is_back(node):
    claim = node.claim("1g.5gb@0")
    made = node.instances.ensure(claim)
    lose(node.nvml)
    with pytest.raises(GpuLost):
        node.release(claim, made)
    bring_back(node.nvml)
    node.release(claim, made)
    assert node.places() == set()


def test_a_gpu_that_is_gone_for_good_has_nothing_to_destroy(node, tmp_path):
    claim = node.claim("1g.5gb@0")
    made = node.instances.ensure(claim)
    (tmp_path / "other").mkdir()
    Node(tmp_path / "other", "t4").release(claim, made)


def test_without_a_driver_the_release_is_tried_again(node):
    claim = node.claim("1g.5gb@0")
    made = node.instances.ensure(claim)
    take_driver_away(node.nvml)
    with pytest.raises(NvmlAway):
        node.release(claim, made)


# Cleaning up.


def reconciled(node, *live, gpus=None):
    return node.instances.reconcile(gpus or uuids(node.nvml), live)


def test_what_no_slice_has_is_destroyed(node):
    node.ensure("1g.5gb@0", "live")
    node.ensure("1g.5gb@1", "gone")
    node.foreign("2g.10gb@2", gpu=1)
    later = node.restarted()
    assert reconciled(later, later.slice("live", "1g.5gb@0")) == ()
    assert (later.places(), later.places(1)) == ({"1g.5gb@0"}, set())


def test_what_is_used_is_left_and_told(node):
    node.runs_on(node.foreign("1g.5gb@0").uuid)
    (report,) = reconciled(node)
    assert "a process still uses GPU instance 7" in report
    assert node.places() == {"1g.5gb@0"}


def test_a_gpu_that_is_not_ours_is_left_alone(node):
    node.foreign("1g.5gb@0", gpu=1)
    reconciled(node, gpus=uuids(node.nvml)[:1])
    assert node.places(1) == {"1g.5gb@0"}


def test_a_live_slice_keeps_its_place_before_its_first_start(node):
    reconciled(node, node.slice("a", "1g.5gb@0"))
    with pytest.raises(InstanceRefused, match="still belongs"):
        node.ensure("1g.5gb@0", "b")


def test_a_slice_that_was_made_meanwhile_is_kept(node):
    node.ensure("1g.5gb@0", "new")
    assert reconciled(node) == ()
    assert node.places() == {"1g.5gb@0"}


def test_a_claim_that_was_released_while_one_looked_is_dropped(node):
    """The looker had it among the live ones still, and claimed its place again."""
    released = node.slice("a", "1g.5gb@0")
    for _ in range(2):
        reconciled(node, released)
    with pytest.raises(InstanceRefused, match="still belongs"):
        node.ensure("3g.20gb@0", "b")
    for _ in range(2):
        reconciled(node)
    node.ensure("3g.20gb@0", "b")
    assert node.places() == {"3g.20gb@0"}


def test_an_idle_gpu_is_put_into_mig_mode(tmp_path):
    node = Node(tmp_path, "a100-40gx2")
    assert reconciled(node) == ()
    assert all(node.nvml.mig_mode(uuid).enabled for uuid in uuids(node.nvml))


@pytest.mark.parametrize(
    ("hinder", "message"),
    [
        pytest.param(lambda node: node.runs_on(uuids(node.nvml)[0]), "in use", id="a process runs on it"),
        pytest.param(lambda node: node.fails("busy"), "in use", id="nobody knows whether one does"),
        pytest.param(lambda node: node.fails("set_mig"), "set_mig", id="the driver refuses"),
    ],
)  # fmt: skip
def test_a_gpu_that_cannot_be_put_into_mig_mode_is_told(tmp_path, hinder, message):
    node = Node(tmp_path, "a100-40g")
    hinder(node)
    (report,) = reconciled(node)
    assert message in report
    assert not node.nvml.mig_mode(uuids(node.nvml)[0]).enabled


def test_a_gpu_with_a_live_slice_is_not_put_into_mig_mode(tmp_path):
    node = Node(tmp_path, "a100-40g")
    shared = Grant(device_id=uuids(node.nvml)[0], vendor="NVIDIA")
    live = node.slice("a")
    live = Slice(**{**{f: getattr(live, f) for f in Slice.__slots__}, "grants": (shared,)})
    (report,) = reconciled(node, live)
    assert "in use" in report


def test_a_reset_that_is_needed_is_told(tmp_path):
    node = Node(tmp_path, "a100-40g")
    with node.nvml.state.changing() as state:
        state.gpu(uuids(node.nvml)[0]).resets_late = True
    for _ in range(2):
        (report,) = reconciled(node)
        assert "needs a reset" in report


def test_what_only_looks_at_a_gpu_is_waited_for(tmp_path):
    """The mode is pending then, which is no reason not to try again."""
    node = Node(tmp_path, "a100-40g")
    (gpu,) = uuids(node.nvml)
    for _ in range(2):
        with node.nvml.state.changing() as state:
            state.held_open = [gpu]
        (report,) = reconciled(node)
        assert "In use by another client" in report
        assert "DCGM" in report
        assert not node.nvml.mig_mode(gpu).enabled
    with node.nvml.state.changing() as state:
        state.held_open = []
    assert reconciled(node) == ()
    assert node.nvml.mig_mode(gpu).enabled


def test_a_gpu_that_cannot_be_cut_is_told(tmp_path):
    (report,) = reconciled(Node(tmp_path, "t4"))
    assert "cannot be cut" in report


def test_one_gpu_that_fails_does_not_stop_the_others(node):
    node.foreign("1g.5gb@0", gpu=1)
    lose(node.nvml, 0)
    (report,) = reconciled(node)
    assert "GPU is lost" in report
    assert node.places(1) == set()


def test_without_a_driver_reconciling_is_tried_again(node):
    take_driver_away(node.nvml)
    with pytest.raises(NvmlAway):
        reconciled(node)


# Together.


def test_many_at_once_do_not_disturb_each_other(node):
    start = threading.Barrier(7)

    def one(place):
        start.wait()
        return node.ensure(f"1g.5gb@{place}", f"slice-{place}")

    with ThreadPoolExecutor(7) as threads:
        made = list(threads.map(one, range(7)))
    assert len({identity.mig_uuid for identity in made}) == 7
    assert node.places() == {f"1g.5gb@{place}" for place in range(7)}


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["ensure", "release", "restart", "fail"]),
        st.integers(0, 5),
    ),
    max_size=25,
)
PLACES = ("1g.5gb@0", "2g.10gb@0", "3g.20gb@0", "1g.5gb@1", "3g.20gb@4", "7g.40gb@0")


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(STEPS)
def test_no_slice_ever_loses_its_instance_or_gets_anothers(tmp_path_factory, steps):
    node = Node(tmp_path_factory.mktemp("node"))
    held = {}
    for what, n in steps:
        claim = node.claim(PLACES[n], f"slice-{n}")
        if what == "ensure":
            try:
                held[n] = node.instances.ensure(claim)
            except (InstanceRefused, NvmlFailed):
                assert n not in held, "what a slice has is never refused to it"
        elif what == "release":
            node.release(claim, held.pop(n, None))
        elif what == "fail":
            if n not in held:
                node.fails("create_compute")
                with pytest.raises((InstanceRefused, NvmlFailed)):
                    node.instances.ensure(claim)
                node.fails("nothing", "")
        else:
            node = node.restarted()
            live = [node.slice(f"slice-{m}", PLACES[m]) for m in held]
            assert node.instances.reconcile(uuids(node.nvml), live) == ()
        exist = {d.uuid for d in node.nvml.mig_devices(uuids(node.nvml)[0])}
        assert {identity.mig_uuid for identity in held.values()} == exist
        assert len(exist) == len(held)
    spans = [Span(start=i.placement.start, size=i.placement.size) for i in held.values()]
    assert sum(span.size for span in spans) <= 8
