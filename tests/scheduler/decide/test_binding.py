"""What a bind comes to, whatever the API server does with it."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from hami.domain.kubernetes.objects import Pod
from hami.domain.scheduling import SchedulingPolicy
from hami.kube.client import PodBinding
from hami.kube.errors import ApiError
from hami.scheduler.bookings.reservations import Phase
from hami.scheduler.cluster.endings import expire
from hami.scheduler.decide.binding import Binder, BindSettings
from hami.scheduler.decide.locks import LockSettings, NodeLocks
from hami.signing import Signer, new_private_pem
from hami.wire.extender import ExtenderBindingArgs

from ..builders import Cluster, a_node, a_pod, bound, debugged, privileged

KUBELET = {"hami.io/node-identity": "ACME=simulated"}


class Leads:
    leading = True
    term = 7
    holder = "somebody"


class Server:
    """The pods of an API server; ``faults`` are raised by the next calls, before or after them."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.pods: dict[str, Pod] = {}
        self.posts: list[PodBinding] = []
        self.before: list[ApiError | None] = []
        self.after: list[ApiError | None] = []
        self.gets: list[ApiError | None] = []
        self.shows = True
        self.hold: asyncio.Event | None = None

    def add(self, pod: Pod) -> Pod:
        self.pods[pod.name] = pod
        self.cluster.sees(pod)
        return pod

    async def bind(self, binding: PodBinding, *, timeout: float) -> None:
        self.posts.append(binding)
        if self.hold is not None:
            await self.hold.wait()
        if self.before and (fault := self.before.pop(0)):
            raise fault
        pod = self.pods.get(binding.name)
        if pod is None:
            raise ApiError("not found", status=404, reason="NotFound")
        if pod.uid != binding.uid or pod.spec.node_name:
            raise ApiError("already assigned", status=409, reason="Conflict")
        self.pods[binding.name] = bound(pod, binding.node, binding.annotations)
        if self.shows:
            self.cluster.sees(self.pods[binding.name])
        if self.after and (fault := self.after.pop(0)):
            raise fault

    async def get(self, _resource: Any, name: str, *, namespace: str) -> Pod:
        if self.gets and (fault := self.gets.pop(0)):
            raise fault
        if name not in self.pods:
            raise ApiError("not found", status=404, reason="NotFound")
        return self.pods[name]


class World:
    def __init__(self, *, signer: Signer | None = None, **annotations: str) -> None:
        self.cluster = Cluster(
            a_node("n1", **KUBELET | annotations), a_node("n2", **KUBELET), signer=signer
        )
        self.server = Server(self.cluster)
        self.leads = Leads()
        self.failures: list[str] = []
        self.binder = Binder(
            self.cluster.state,
            self.server,  # type: ignore[arg-type]
            self.leads,  # type: ignore[arg-type]
            NodeLocks(self.cluster.state, self.server, LockSettings),  # type: ignore[arg-type]
            settings=lambda: BindSettings(policy=SchedulingPolicy(), retry=0.01),
            signer=lambda: self.cluster.signer,
            failed=lambda _pod, text: self.failures.append(text),
        )

    async def bind(self, pod: Pod, node: str = "n1") -> str:
        return (await self.binder.bind(asked(pod, node))).error


def asked(pod: Pod, node: str = "n1") -> ExtenderBindingArgs:
    return ExtenderBindingArgs(
        pod_name=pod.name, pod_namespace=pod.namespace, pod_uid=pod.uid, node=node
    )


def lost(status: int = 0) -> ApiError:
    return ApiError("reset", status=status)


async def test_one_post_carries_node_allocation_and_term() -> None:
    world = World()
    pod = world.server.add(a_pod(mem=3000))
    world.cluster.reserve(pod, "n1")
    assert await world.bind(pod) == ""
    (post,) = world.server.posts
    assert (post.uid, post.node, post.labels) == (pod.uid, "n1", {"hami.io/vgpu-node": "n1"})
    assert {k: v for k, v in post.annotations.items() if "time" not in k} == {
        "acme.com/allocated": "n1-d0,ACME,3000,0:;",
        "acme.com/to-allocate": "n1-d0,ACME,3000,0:;",
        "hami.io/bind-phase": "allocating",
        "hami.io/vgpu-node": "n1",
        "hami.io/scheduler-term": "7",
    }
    assert world.cluster.used() == (1, 3000)
    assert not world.cluster.state.reservations


async def test_the_signature_verifies_over_what_the_informer_shows() -> None:
    world = World(signer=Signer.from_pem(new_private_pem()))
    pod = world.server.add(a_pod(mem=3000, init_mem=500))
    world.cluster.reserve(pod, "n1")
    assert await world.bind(pod) == ""
    assert world.cluster.state.charges[pod.uid].generation == 1
    assert not world.cluster.problems


async def test_the_limit_of_compute_is_bound_and_signed_with_the_devices() -> None:
    world = World(signer=Signer.from_pem(new_private_pem()))
    limited = a_pod(cores=30, init_mem=500, annotations={"hami.io/gpucores-limit": "80"})
    pod = world.server.add(limited)
    world.cluster.reserve(pod, "n1")
    assert await world.bind(pod) == ""
    (post,) = world.server.posts
    main = pod.spec.containers[0].name
    assert post.annotations["hami.io/allocated-gpucores-limit"] == f"{main}=80"
    assert world.cluster.state.charges[pod.uid].generation == 1
    assert not world.cluster.problems


async def test_without_a_reservation_the_pod_is_fitted_there_now() -> None:
    world = World()
    pod = world.server.add(a_pod(mem=3000))
    assert await world.bind(pod, "n2") == ""
    assert world.cluster.used("n2") == (1, 3000)


async def test_another_node_than_was_promised_is_fitted_there_now() -> None:
    world = World()
    pod = world.server.add(a_pod(mem=3000))
    world.cluster.reserve(pod, "n1")
    assert await world.bind(pod, "n2") == ""
    assert (world.cluster.used("n1"), world.cluster.used("n2")) == ((0, 0), (1, 3000))


async def test_a_privileged_pod_that_went_past_the_webhook_is_not_bound() -> None:
    world = World()
    pod = world.server.add(privileged(a_pod(mem=3000)))
    assert await world.bind(pod) == "container helper is privileged"
    assert world.server.posts == []


async def test_what_was_added_to_a_pod_since_it_was_filtered_keeps_it_from_being_bound() -> None:
    world = World()
    pod = world.server.add(a_pod(mem=3000))
    world.cluster.reserve(pod, "n1")
    world.server.add(debugged(pod))
    assert await world.bind(pod) == "container debugger is privileged"
    assert (world.server.posts, world.cluster.used("n1")) == ([], (0, 0))


async def test_a_node_without_room_is_refused_with_the_reason() -> None:
    world = World()
    pod = world.server.add(a_pod(mem=9000))
    assert "CardInsufficientMemory" in await world.bind(pod)
    assert not world.server.posts


@pytest.mark.parametrize("status", [400, 403, 404, 422, 429])
async def test_a_definite_refusal_gives_the_reservation_up(status: int) -> None:
    world = World()
    pod = world.server.add(a_pod(mem=3000))
    world.cluster.reserve(pod, "n1")
    world.server.before = [lost(status)]
    assert await world.bind(pod) != ""
    assert world.cluster.used() == (0, 0)
    assert world.failures


@pytest.mark.parametrize("status", [0, 500, 503, 504, 408])
async def test_a_lost_bind_that_arrived_is_bound(status: int) -> None:
    world = World()
    pod = world.server.add(a_pod(mem=3000))
    world.cluster.reserve(pod, "n1")
    world.server.shows, world.server.after = False, [lost(status)]
    assert await world.bind(pod) == ""
    assert world.cluster.state.reservations[pod.uid].phase is Phase.BOUND
    assert world.cluster.used() == (1, 3000)


@pytest.mark.parametrize("status", [0, 500, 503])
async def test_a_lost_bind_that_did_not_arrive_keeps_its_promise_for_the_next(status: int) -> None:
    world = World()
    pod = world.server.add(a_pod(mem=3000))
    world.cluster.reserve(pod, "n1")
    world.server.before = [lost(status)]
    assert await world.bind(pod) != ""
    assert world.cluster.used() == (1, 3000)
    assert world.cluster.state.reservations[pod.uid].phase is Phase.RESERVED
    assert await world.bind(pod) == ""
    assert world.cluster.used() == (1, 3000)


async def test_while_the_server_is_silent_the_devices_stay_taken_until_it_speaks() -> None:
    world = World()
    pod = world.server.add(a_pod(mem=3000))
    world.cluster.reserve(pod, "n1")
    world.server.shows = False
    world.server.after, world.server.gets = [lost()], [lost(), lost(500), lost()]
    assert await world.bind(pod) != ""
    assert world.cluster.state.reservations[pod.uid].phase is Phase.BINDING
    world.cluster.clock.now += 10_000
    assert expire(world.cluster.state, 300) == []
    for _ in range(200):
        await asyncio.sleep(0.01)
        if world.cluster.state.reservations[pod.uid].phase is Phase.BOUND:
            break
    assert world.cluster.state.reservations[pod.uid].phase is Phase.BOUND
    await world.binder.close()


async def test_the_informer_settles_a_lost_bind_too() -> None:
    world = World()
    pod = world.server.add(a_pod(mem=3000))
    world.cluster.reserve(pod, "n1")
    world.server.shows = False
    world.server.after, world.server.gets = [lost()], [lost()] * 1000
    await world.bind(pod)
    world.cluster.sees(world.server.pods["p"])
    assert not world.cluster.state.reservations
    assert world.cluster.used() == (1, 3000)
    assert await world.bind(pod) == ""
    assert len(world.server.posts) == 1
    await world.binder.close()


async def test_binding_a_bound_pod_again_is_no_second_post() -> None:
    world = World()
    pod = world.server.add(a_pod(mem=3000))
    assert await world.bind(pod) == ""
    assert await world.bind(pod) == ""
    assert "bound to n1 already" in await world.bind(pod, "n2")
    assert len(world.server.posts) == 1


async def test_a_pod_bound_by_another_scheduler_meanwhile_is_not_ours() -> None:
    world = World()
    pod = world.server.add(a_pod(mem=3000))
    world.cluster.reserve(pod, "n1")
    world.server.pods["p"] = bound(pod, "n2", {})
    assert await world.bind(pod) != ""
    assert world.cluster.used("n1") == (0, 0)


async def test_two_binds_of_one_pod_at_once_are_one_post() -> None:
    world = World()
    pod = world.server.add(a_pod(mem=3000))
    world.cluster.reserve(pod, "n1")
    world.server.hold = asyncio.Event()
    first = asyncio.create_task(world.bind(pod))
    await asyncio.sleep(0)
    assert "under way" in await world.bind(pod)
    world.server.hold.set()
    assert await first == ""
    assert len(world.server.posts) == 1


async def test_a_pod_deleted_during_its_bind_frees_everything() -> None:
    world = World()
    pod = world.server.add(a_pod(mem=3000))
    world.cluster.reserve(pod, "n1")
    world.server.hold = asyncio.Event()
    first = asyncio.create_task(world.bind(pod))
    await asyncio.sleep(0)
    del world.server.pods["p"]
    world.cluster.state.pod_gone(pod)
    world.server.hold.set()
    assert await first != ""
    assert world.cluster.used() == (0, 0)


async def test_a_pod_recreated_under_its_name_is_not_bound_with_the_old_uid() -> None:
    world = World()
    pod = world.server.add(a_pod(mem=3000))
    world.cluster.reserve(pod, "n1")
    world.server.pods["p"] = a_pod(mem=3000, uid="another")
    assert await world.bind(pod) != ""
    assert world.cluster.used() == (0, 0)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"pod_uid": "unknown"}, "no pod default/p with the uid unknown"),
        ({"pod_name": "other"}, "no pod default/other"),
        ({"pod_namespace": "other"}, "no pod other/p"),
        ({"node": ""}, "node unregistered"),
        ({"node": "nowhere"}, "node unregistered"),
    ],
)
async def test_a_body_that_names_nothing_real_is_answered(
    change: dict[str, str], text: str
) -> None:
    world = World()
    pod = world.server.add(a_pod(mem=3000))
    args = msgspec.structs.replace(asked(pod), **change)
    error = (await world.binder.bind(args)).error
    assert text in error
    assert world.cluster.used() == (0, 0)


async def test_a_follower_binds_nothing() -> None:
    world = World()
    pod = world.server.add(a_pod())
    world.leads.leading = False
    assert "somebody" in await world.bind(pod)
    assert not world.server.posts


async def test_a_leader_that_stops_during_a_node_lock_sends_no_bind() -> None:
    world = World()
    pod = world.server.add(a_pod(mem=3000))
    world.cluster.reserve(pod, "n1")

    async def take(*_: Any) -> str:
        world.leads.leading = False
        return ""

    world.binder._locks.take = take  # type: ignore[method-assign]
    assert "stopped to lead" in await world.bind(pod)
    assert not world.server.posts
    assert world.cluster.used() == (0, 0)


async def test_a_pod_without_devices_is_bound_plainly() -> None:
    world = World()
    pod = world.server.add(a_pod(mem=None))
    assert await world.bind(pod) == ""
    assert not world.server.posts[0].annotations


async def test_a_bug_before_the_post_frees_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    pod = world.server.add(a_pod(mem=3000))
    world.cluster.reserve(pod, "n1")
    monkeypatch.setattr("hami.scheduler.decide.binding.annotations_of", lambda *_: {}["no"])
    with pytest.raises(KeyError):
        await world.bind(pod)
    assert world.cluster.used() == (0, 0)
    assert not world.cluster.state.reservations


async def test_a_bind_cut_off_in_the_middle_keeps_its_devices_until_it_is_settled() -> None:
    world = World()
    pod = world.server.add(a_pod(mem=3000))
    world.cluster.reserve(pod, "n1")
    world.server.hold = asyncio.Event()
    bind = asyncio.create_task(world.bind(pod))
    await asyncio.sleep(0)
    assert not world.binder.quiet
    bind.cancel()
    await asyncio.gather(bind, return_exceptions=True)
    assert world.cluster.used() == (1, 3000)
    assert not world.binder.quiet
    await world.binder.close()


async def test_while_a_lost_bind_is_asked_for_no_second_one_begins() -> None:
    world = World()
    pod = world.server.add(a_pod(mem=3000))
    world.cluster.reserve(pod, "n1")
    world.server.before, world.server.gets = [lost()], [lost()]
    await world.bind(pod)
    asked, answered = asyncio.Event(), asyncio.Event()

    async def get(*_: Any, **__: Any) -> Pod:
        asked.set()
        await answered.wait()
        return pod

    world.server.get = get  # type: ignore[method-assign]
    await asyncio.wait_for(asked.wait(), 10)
    assert "under way" in await world.bind(pod)
    answered.set()
    for _ in range(500):
        await asyncio.sleep(0.01)
        if not world.binder._settling:
            break
    assert await world.bind(pod) == ""
    assert len(world.server.posts) == 2
    assert world.cluster.used() == (1, 3000)


async def test_a_lost_bind_may_arrive_until_its_time_is_over() -> None:
    world = World()
    pod = world.server.add(a_pod(mem=8000))
    other = world.server.add(a_pod("other", mem=8000))
    world.cluster.reserve(pod, "n1")
    world.server.before = [lost()]
    await world.bind(pod)
    assert world.cluster.state.reservations.promised(pod.uid) == "n1"
    assert "CardInsufficientMemory" in await world.bind(other)
    assert world.cluster.used() == (1, 8000)
