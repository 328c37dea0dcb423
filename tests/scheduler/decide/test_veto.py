"""What kube-scheduler is answered when it asks whether evictions would help a pod."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from hami.domain.kubernetes.objects import ElasticQuota, ElasticQuotaSpec, Metadata, Node, Pod
from hami.domain.scheduling import SchedulingPolicy
from hami.scheduler.bookings.reservations import Phase
from hami.scheduler.decide.extender import Extender
from hami.scheduler.metrics import Metrics
from hami.wire.extender import ExtenderPreemptionArgs

from ..builders import Cluster, a_node, a_pod, a_quota, acme, bound, granted
from ..exposition.test_metrics import own
from .test_extender import Leads


class World:
    """``asks`` answers with the nodes that stay, each with its victims' uids."""

    def __init__(self, *nodes: Node) -> None:
        self.cluster = Cluster(*nodes)
        self.leads = Leads()
        self.metrics = Metrics()
        self.extender = Extender(
            self.cluster.state,
            None,  # type: ignore[arg-type]
            self.leads,  # type: ignore[arg-type]
            self.metrics,
            policy=SchedulingPolicy,
            refused=lambda _pod, _text: None,
        )

    async def asks(self, pod: Pod, **victims: list[Pod]) -> dict[str, list[str]]:
        named = {
            node: {"Pods": [{"UID": pod.uid} for pod in pods]} for node, pods in victims.items()
        }
        answer = await self.answer({"Pod": pod, "NodeNameToMetaVictims": named})
        return {node: [pod["UID"] for pod in left["Pods"]] for node, left in answer.items()}

    async def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        args = msgspec.json.decode(msgspec.json.encode(body), type=ExtenderPreemptionArgs)
        before = self.books()
        result = await self.extender.preempt(args)
        assert self.books() == before, "a question changes nothing"
        return msgspec.json.decode(msgspec.json.encode(result))["NodeNameToMetaVictims"] or {}

    def books(self) -> Any:
        state = self.cluster.state
        used = {node: state.table.inventory(node) for node in state.nodes}
        return used, set(state.reservations), set(state.charges), set(state.pending.pods)

    def outcomes(self) -> dict[tuple[str, ...], float]:
        return own(self.metrics, "hami_scheduler_preempt_duration_seconds_count")

    def vetoes(self) -> dict[tuple[str, ...], float]:
        return own(self.metrics, "hami_scheduler_preempt_vetoes_total")


LOW, OTHER, ASKS = "low", "other", "asks"


def running(name: str, node: str, mem: int) -> Pod:
    return granted(a_pod(name, mem=mem), node, f"{node}-d0:{mem}")


async def test_a_node_stays_where_the_devices_fit_without_the_victims() -> None:
    world = World(a_node("n1"), a_node("n2"), a_node("n3"))
    low1, low2, low3 = (running(f"low{n}", f"n{n}", 5000) for n in (1, 2, 3))
    world.cluster.sees(low1, low2, low3, running(OTHER, "n2", 3000), pod := a_pod(ASKS, mem=6000))
    answer = await world.asks(pod, n1=[low1], n2=[low2], n3=[low3])
    assert answer == {"n1": [low1.uid], "n3": [low3.uid]}
    assert world.outcomes() == {("kept",): 1}
    assert world.vetoes() == {("CardInsufficientMemory",): 1}


async def test_no_node_stays_where_none_would_do() -> None:
    world = World(a_node())
    low = running(LOW, "n1", 1000)
    world.cluster.sees(low, running(OTHER, "n1", 6000), pod := a_pod(ASKS, mem=3000))
    assert await world.asks(pod, n1=[low]) == {}
    assert world.outcomes() == {("vetoed",): 1}


async def test_victims_without_devices_free_none() -> None:
    world = World(a_node())
    low = bound(a_pod(LOW, mem=None), "n1", {})
    world.cluster.sees(low, running(OTHER, "n1", 6000), pod := a_pod(ASKS, mem=3000))
    assert await world.asks(pod, n1=[low]) == {}
    world.cluster.sees(small := a_pod("small", mem=2000))
    assert await world.asks(small, n1=[low]) == {"n1": [low.uid]}


async def test_what_is_promised_to_others_stays_promised() -> None:
    world = World(a_node())
    low = running(LOW, "n1", 3000)
    world.cluster.sees(low, promised := a_pod("promised", mem=5000), pod := a_pod(ASKS, mem=5000))
    world.cluster.reserve(promised)
    assert await world.asks(pod, n1=[low]) == {}
    world.cluster.state.bookings.release(promised.uid)
    assert await world.asks(pod, n1=[low]) == {"n1": [low.uid]}


async def test_what_is_promised_to_a_victim_goes_with_it() -> None:
    """kube-scheduler has bound it, and our informer has not shown that yet."""
    world = World(a_node())
    world.cluster.sees(low := a_pod(LOW, mem=5000), pod := a_pod(ASKS, mem=5000))
    world.cluster.reserve(low)
    world.cluster.state.reservations[low.uid].phase = Phase.BOUND
    assert await world.asks(pod, n1=[low]) == {"n1": [low.uid]}


async def test_its_own_promise_elsewhere_stands_in_nobodys_way() -> None:
    world = World(a_node())
    low = running(LOW, "n1", 3000)
    world.cluster.sees(low, pod := a_pod(ASKS, mem=5000))
    world.cluster.reserve(pod)
    world.cluster.sees(pod := a_pod(ASKS, mem=8000))
    assert await world.asks(pod, n1=[low]) == {"n1": [low.uid]}


@pytest.mark.parametrize(
    ("limit", "kept"),
    [
        pytest.param("7999", {}, id="quota lacks one MiB"),
        pytest.param("8000", {"n1": ["uid-default-low"]}, id="the victim frees just enough quota"),
    ],
)
async def test_quota_counts_without_the_victims_of_its_namespace(limit: str, kept: object) -> None:
    world = World(a_node("n1"), a_node("n2"))
    world.cluster.state.quota_changed(a_quota(mem=limit))
    low = running(LOW, "n1", 5000)
    world.cluster.sees(low, running(OTHER, "n2", 3000), pod := a_pod(ASKS, mem=5000))
    assert await world.asks(pod, n1=[low], n2=[]) == kept
    assert (("ResourceQuotaNotFit",) in world.vetoes()) is True


async def test_a_victim_of_another_namespace_frees_no_quota_of_this_one() -> None:
    world = World(a_node())
    world.cluster.state.quota_changed(a_quota(mem="4000"))
    low = granted(a_pod(LOW, namespace="there", mem=5000), "n1", "n1-d0:5000")
    world.cluster.sees(low, pod := a_pod(ASKS, mem=5000))
    assert await world.asks(pod, n1=[low]) == {}


async def test_victims_are_given_back_as_they_came() -> None:
    world = World(a_node("n1"), a_node("n2", memory=100))
    low = running(LOW, "n1", 5000)
    world.cluster.sees(low, pod := a_pod(ASKS, mem=6000))
    named = {
        "n1": {"Pods": [{"UID": "stranger"}, {"UID": low.uid}], "NumPDBViolations": 2},
        "n2": {"Pods": [{"UID": "stranger"}], "NumPDBViolations": 1},
    }
    assert await world.answer({"Pod": pod, "NodeNameToMetaVictims": named}) == {"n1": named["n1"]}


async def test_a_scheduler_without_a_node_cache_sends_whole_pods() -> None:
    world = World(a_node("n1"), a_node("n2", memory=100))
    low = running(LOW, "n1", 5000)
    world.cluster.sees(low, pod := a_pod(ASKS, mem=6000))
    whole = {n: {"Pods": [low], "NumPDBViolations": 3} for n in ("n1", "n2")}
    answer = await world.answer(
        {"Pod": pod, "NodeNameToVictims": whole, "NodeNameToMetaVictims": None}
    )
    assert answer == {"n1": {"Pods": [{"UID": low.uid}], "NumPDBViolations": 3}}


async def test_a_pod_without_devices_is_not_our_business() -> None:
    world = World(a_node())
    world.cluster.sees(pod := a_pod(ASKS, mem=None))
    assert await world.asks(pod, n1=[a_pod(LOW)], strange=[a_pod(OTHER)]) == {
        "n1": ["uid-default-low"],
        "strange": ["uid-default-other"],
    }
    assert world.outcomes() == {("passed",): 1}


async def test_a_forged_body_is_not_believed() -> None:
    world = World(a_node())
    low = running(LOW, "n1", 1000)
    world.cluster.sees(low, running(OTHER, "n1", 6000), a_pod(ASKS, mem=3000))
    assert await world.asks(a_pod(ASKS, mem=1), n1=[low]) == {}


async def test_a_node_that_is_not_known_helps_nobody() -> None:
    world = World(a_node())
    world.cluster.sees(pod := a_pod(ASKS))
    assert await world.asks(pod, strange=[a_pod(LOW)]) == {}
    assert world.vetoes() == {("node unregistered",): 1}


async def test_nobody_is_evicted_for_a_request_that_cannot_be_read() -> None:
    world = World(a_node())
    world.cluster.sees(pod := a_pod(ASKS, mem=-1))
    assert await world.asks(pod, n1=[a_pod(LOW)]) == {}
    assert world.vetoes() == {("InvalidRequest",): 1}


async def test_nobody_is_evicted_for_a_pod_that_has_its_node() -> None:
    world = World(a_node("n1"), a_node("n2"))
    world.cluster.sees(
        low := running(LOW, "n1", 1000), pod := running(ASKS, "n2", 3000), later := a_pod("later")
    )
    assert await world.asks(pod, n1=[low]) == {}
    world.cluster.reserve(later, "n2")
    world.cluster.state.reservations[later.uid].phase = Phase.BINDING
    assert await world.asks(later, n1=[low]) == {}
    assert world.outcomes() == {("bound_already",): 2}


class TestWhoCannotKnow:
    """Nobody is evicted on a guess."""

    @pytest.fixture
    def world(self, monkeypatch: pytest.MonkeyPatch) -> World:
        monkeypatch.setattr("hami.scheduler.decide.extender.PATIENCE", 0.01)
        world = World(a_node("n1"), a_node("n2"))
        world.cluster.sees(self.pod, self.low)
        return world

    pod, low = a_pod(ASKS, mem=6000), running(LOW, "n1", 5000)

    async def test_a_follower(self, world: World) -> None:
        world.leads.leading = False
        assert await world.asks(self.pod, n1=[self.low]) == {}
        assert world.outcomes() == {("error",): 1}

    async def test_who_stops_to_lead_meanwhile(self, world: World) -> None:
        class Until:
            """It leads as often as it is asked before."""

            holder, left = "somebody", 2

            @property
            def leading(self) -> bool:
                self.left -= 1
                return self.left >= 0

        world.extender._leadership = Until()  # type: ignore[assignment]
        assert await world.asks(self.pod, n1=[self.low]) == {}
        assert world.outcomes() == {("error",): 1}

    async def test_who_has_not_seen_the_pod(self, world: World) -> None:
        assert await world.asks(a_pod("new"), n1=[self.low]) == {}
        assert world.outcomes() == {("error",): 1}

    async def test_whose_devices_are_configured_anew_meanwhile(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Reloading:
            async def pause(self) -> None:
                world.cluster.state.use(acme())

        monkeypatch.setattr("hami.scheduler.decide.veto.Turns", Reloading)
        assert await world.asks(self.pod, n1=[self.low]) == {}
        assert world.outcomes() == {("error",): 1}

    @pytest.mark.parametrize(
        "body", [{}, {"Pod": 7, "NodeNameToMetaVictims": {}}, {"NodeNameToMetaVictims": {"n1": {}}}]
    )
    async def test_who_is_asked_nonsense(self, world: World, body: dict[str, Any]) -> None:
        assert await world.answer(body) == {}
        assert world.outcomes() == {("error",): 1}


async def test_elastic_quota_that_the_victims_leave_counts_as_free() -> None:
    world = World(a_node(devices=2))
    least = ElasticQuotaSpec(min={"acme.com/mem": 8000})
    quota = ElasticQuota(metadata=Metadata(name="q", namespace="default"), spec=least)
    world.cluster.state.elastic.put(quota)
    world.cluster.state.quota_objects.arrange()
    low = granted(a_pod("low", mem=8000), "n1", "n1-d0:8000")
    high = a_pod("high", mem=8000, priority=10)
    world.cluster.sees(low, high)
    assert await world.asks(high, n1=[low]) == {"n1": [low.uid]}
    assert await world.asks(high, n1=[]) == {}
