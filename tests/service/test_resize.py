"""Live resize over real sockets: who may, what it comes to, and what a crash leaves."""

from __future__ import annotations

import asyncio
import random
import signal
import uuid
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest

from hami.signing import new_private_pem

from .world.objects import a_container, a_quota
from .world.process import Service, until
from .world.recount import Amount
from .world.users import a_user, may_resize
from .world.world import World

FAST = {
    "leader_mode": "own",
    "leader_elect_lease_duration": "3s",
    "leader_elect_renew_deadline": "2s",
    "leader_elect_retry_period": "300ms",
    "bind_timeout": "500ms",
}
SIGNATURE, PATCH = "allocation-signature", {"method": "PATCH", "suffix": "/pods/p"}


@dataclass
class Tenant:
    """Somebody with a token, and the service that he asks."""

    world: World
    service: Service
    token: str

    async def resize(self, pod: Any, *, id: str = "", container: str = "", token: str | None = None,
                     **amounts: int) -> tuple[int, Any]:  # fmt: skip
        """Status and body; ``memoryMiB`` and ``cores``."""
        about = pod["metadata"]
        body = {
            "requestId": id or uuid.uuid4().hex,
            "containers": [{"name": container, **amounts}],
        }
        path = f"pods/{about['namespace']}/{about['name']}/resize"
        return await self.service.post(path, body, self.token if token is None else token)

    def generation(self, pod: Any) -> int:
        return int(self.world.annotation(pod, SIGNATURE).split(".")[1])

    async def has(self, pod: Any, generation: int, memory: int, cores: int = 0) -> None:
        """One generation in force, and the books are what it says."""
        assert self.generation(pod) == generation
        await self.world.agree(self.service)
        assert await self.service.used() == {("n1", "GPU-n1-0"): Amount(1, memory, cores)}


async def takes_over(service):
    async def leads():
        return (await service.summary())["leading"]

    await until(f"{service.name} leads", leads, story=service.last_lines)


@pytest.fixture
async def tenant(world):
    file = world.folder / "keys.pem"
    file.write_bytes(new_private_pem())
    await world.add_nodes("n1")
    service = await world.service(signing_key_file=file)
    return Tenant(world, service, await a_user(world, "tenant"))


@pytest.fixture
async def pod(tenant):
    return await tenant.world.place(tenant.service, "p", gpu=1, mem=4000, cores=20)


# What it comes to.


async def test_a_resize_is_one_write_and_the_next_generation(tenant, pod):
    world = tenant.world
    status, body = await tenant.resize(pod, id="one", memoryMiB=9000, cores=50)
    assert (status, body) == (200, {
        "pod": "default/p", "node": "n1", "requestId": "one", "generation": 2,
        "containers": [{"name": "main", "grants": [
            {"vendor": "NVIDIA", "device": "GPU-n1-0", "memoryMiB": 9000, "cores": 50},
        ], "coresLimit": 0}],
    })  # fmt: skip
    assert world.annotation(pod, "vgpu-devices-allocated") == "GPU-n1-0,NVIDIA,9000,50:;"
    assert [write for write in world.writes() if write[0] == "patch"] == [
        ("patch", "pods", "", 200, 1)
    ]
    await tenant.has(pod, 2, 9000, 50)
    await until("an event", lambda: world.events("Resized"))
    assert world.events("Resized") == ["generation 2: container main has GPU-n1-0: 9000 MiB, 50 %"]


async def test_what_was_freed_and_what_was_taken_counts_for_the_next_pod(tenant, pod):
    world = tenant.world
    other = await world.add_pod("other", gpu=1, mem=13000)
    assert not (await world.filter(tenant.service, other)).node
    assert (await tenant.resize(pod, memoryMiB=3000))[0] == 200
    assert (await world.filter(tenant.service, other)).node == "n1"
    status, body = await tenant.resize(pod, memoryMiB=3001)
    assert (status, body["reason"]) == (409, "Refused")
    assert body["refusals"] == [{
        "reason": "CardInsufficientMemory", "device": "GPU-n1-0", "container": "",
        "resource": "nvidia.com/gpumem", "asked": 3001, "free": 3000,
        "message": "device GPU-n1-0: nvidia.com/gpumem: asked 3001 MiB > free 3000 MiB (it has "
                   "16000, other pods 13000)",
    }]  # fmt: skip
    assert await world.bind(tenant.service, other, "n1") == ""


async def test_quota_follows_and_refuses(tenant, pod):
    world = tenant.world
    await world.server.create(a_quota("q", mem=10000))
    await until("the quota is known", lambda: _quota(tenant, 4000))
    assert (await tenant.resize(pod, memoryMiB=10000))[0] == 200
    await until("its status follows", lambda: _status(world) == "10k")
    status, body = await tenant.resize(pod, memoryMiB=10001)
    (refusal,) = body["refusals"]
    assert (status, refusal["reason"], refusal["asked"], refusal["free"]) == (
        409, "ResourceQuotaNotFit", 10001, 10000,
    )  # fmt: skip
    await tenant.has(pod, 2, 10000, 20)


async def _quota(tenant, used):
    (quota,) = await tenant.service.each("quotas") or [None]
    return quota and quota["limits"]["limits.nvidia.com/gpumem"]["used"] == used


def _status(world):
    status = world.server.get("resourcequotas", "q", namespace="default")["status"]
    return status.get("used", {}).get("limits.nvidia.com/gpumem")


async def test_several_containers_at_once(tenant):
    world = tenant.world
    sidecar = a_container("side", policy="Always", gpu=1, mem=1000)
    pod = await world.place(tenant.service, "p", inits=[sidecar], gpu=1, mem=2000)
    body = {"requestId": "r", "containers": [{"name": "side", "memoryMiB": 500}, {"name": "main", "memoryMiB": 8000}]}  # fmt: skip
    status, answer = await tenant.service.post("pods/default/p/resize", body, tenant.token)
    assert status == 200, answer
    assert await tenant.service.used() == {("n1", "GPU-n1-0"): Amount(2, 8500, 0)}
    status, answer = await tenant.resize(pod, memoryMiB=1)
    assert answer["refusals"][0]["reason"] == "NoSuchSlice"


# Who may.


async def test_who_may_not(tenant, pod):
    world = tenant.world
    stranger = await a_user(world, "stranger", resizes=False)
    neighbour = await _of_another_namespace(world)
    for token, expected in (
        ("", (401, "Unauthorized")),
        ("nonsense", (401, "Unauthorized")),
        (stranger, (403, "Forbidden")),
        (neighbour, (403, "Forbidden")),
    ):
        status, body = await tenant.resize(pod, memoryMiB=5000, token=token)
        assert (status, body["reason"]) == expected
    await tenant.has(pod, 1, 4000, 20)
    await may_resize(world, "stranger")
    assert (await tenant.resize(pod, memoryMiB=5000, token=stranger))[0] == 200


async def _of_another_namespace(world):
    await world.add_namespace("elsewhere")
    return await a_user(world, "neighbour", namespace="elsewhere")


async def test_whether_a_pod_exists_is_said_to_those_who_may(tenant, pod):
    stranger = await a_user(tenant.world, "stranger", resizes=False)
    ghost = {"metadata": {"name": "ghost", "namespace": "default"}}
    assert (await tenant.resize(ghost, memoryMiB=1, token=stranger))[0] == 403
    assert (await tenant.resize(ghost, memoryMiB=1))[0] == 404


@pytest.mark.parametrize(
    "body",
    [
        pytest.param({"requestId": "r"}, id="no containers"),
        pytest.param({"requestId": "r", "containers": []}, id="none of them"),
        pytest.param({"requestId": "r", "containers": [{"name": "main"}]}, id="no amount"),
        pytest.param({"requestId": "a b", "containers": [{"cores": 1}]}, id="a strange id"),
        pytest.param({"requestId": "r", "containers": [{"cores": 101}]}, id="too much"),
        pytest.param({"requestId": "r", "containers": [{"memoryMiB": 0}]}, id="nothing"),
        pytest.param({"requestId": "r", "containers": [{"cores": 1, "slots": 9}]}, id="a word that is not known"),
        pytest.param({"requestId": "r", "containers": [{"cores": 1}, {"name": "a", "cores": 1}]}, id="one without a name"),
    ],
)  # fmt: skip
async def test_a_body_that_cannot_be(tenant, pod, body):
    status, answer = await tenant.service.post("pods/default/p/resize", body, tenant.token)
    assert (status, answer["reason"]) == (400, "BadRequest")


# The leader alone.


@pytest.fixture
async def pair(world):
    """The first of two replicas leads; the tenant asks it."""
    keys = world.folder / "keys.pem"
    keys.write_bytes(new_private_pem())
    await world.add_nodes("n1")
    first = await world.service("first", identity="first", signing_key_file=keys, **FAST)
    await takes_over(first)
    second = await world.service("second", identity="second", signing_key_file=keys, **FAST)
    return Tenant(world, first, await a_user(world, "tenant")), second


async def test_a_follower_says_who_leads(pair):
    tenant, second = pair
    pod = await tenant.world.place(tenant.service, "p", gpu=1, mem=4000)
    asked = Tenant(tenant.world, second, tenant.token)

    async def names_it():
        status, body = await asked.resize(pod, memoryMiB=9000)
        assert (status, body["reason"]) == (503, "NotLeading")
        return body["message"] == "this replica does not lead; first does"

    await until("it names the leader", names_it)
    assert (await tenant.resize(pod, memoryMiB=9000))[0] == 200
    await until("its books follow", lambda: _uses(second, 9000))


async def test_a_write_without_an_answer_when_the_lease_is_lost(pair):
    """It is not sent again; the next leader finds one generation, and goes on from it."""
    tenant, second = pair
    world = tenant.world
    pod = await world.place(tenant.service, "p", gpu=1, mem=4000)
    gate = world.server.gate(**PATCH, times=None)
    asked = world.ask(tenant.resize(pod, id="once", memoryMiB=9000))
    await gate.come()
    tenant.service.signal(signal.SIGSTOP)
    await takes_over(second)
    world.server.front.gates.remove(gate)
    tenant.service.signal(signal.SIGCONT)
    status, body = await asked
    assert (status, body["reason"]) == (503, "NotLeading")
    next_one = Tenant(world, second, tenant.token)
    assert (await next_one.resize(pod, id="once", memoryMiB=9000))[0] == 200
    await next_one.has(pod, 2, 9000)
    gate.release()
    await next_one.has(pod, 2, 9000)


async def _uses(service, memory):
    return any(amount.memory == memory for amount in (await service.used()).values())


# The same request again.


async def test_the_same_request_again_has_the_same_answer_also_after_a_restart(tenant, pod):
    asked = {"id": "once", "memoryMiB": 9000}
    first = await tenant.resize(pod, **asked)
    assert await tenant.resize(pod, **asked) == first
    await tenant.service.kill()
    await tenant.service.start()
    assert await tenant.resize(pod, **asked) == first
    await tenant.has(pod, 2, 9000, 20)
    status, body = await tenant.resize(pod, id="once", memoryMiB=9001)
    assert (status, body["reason"]) == (422, "RequestIdReused")


async def test_a_late_repetition_does_not_undo_a_newer_request(tenant, pod):
    assert (await tenant.resize(pod, id="first", memoryMiB=9000))[0] == 200
    assert (await tenant.resize(pod, id="second", memoryMiB=5000))[0] == 200
    status, body = await tenant.resize(pod, id="first", memoryMiB=9000)
    assert (status, body["reason"]) == (409, "Superseded")
    await tenant.has(pod, 3, 5000, 20)


async def test_one_at_a_time_and_the_same_one_together(tenant, pod):
    gate = tenant.world.server.gate(**PATCH)
    asked = [tenant.world.ask(tenant.resize(pod, id="a", memoryMiB=9000)) for _ in range(3)]
    await gate.come()
    status, body = await tenant.resize(pod, id="b", memoryMiB=5000)
    assert (status, body["reason"]) == (409, "Busy")
    gate.release()
    assert [status for status, _ in await asyncio.gather(*asked)] == [200, 200, 200]
    assert gate.reached == 1
    await tenant.has(pod, 2, 9000, 20)


async def test_resizes_of_many_pods_side_by_side(tenant):
    world = tenant.world
    pods = [await world.place(tenant.service, f"p{n}", gpu=1, mem=1000) for n in range(8)]
    for memory in (2000, 500, 1900):
        done = await asyncio.gather(*(tenant.resize(pod, memoryMiB=memory) for pod in pods))
        assert [status for status, _ in done] == [200] * 8
    assert await tenant.service.used() == {("n1", "GPU-n1-0"): Amount(8, 8 * 1900, 0)}
    await world.agree(tenant.service)


# Trouble.


@pytest.mark.parametrize("late", [False, True], ids=["it never arrived", "its answer was lost"])
async def test_a_write_without_an_answer_is_sent_until_its_outcome_is_known(tenant, pod, late):
    gate = tenant.world.server.gate(**PATCH, late=late, status=500, times=2)
    status, body = await tenant.resize(pod, memoryMiB=9000)
    assert (status, body["generation"]) == (200, 2)
    assert gate.reached == (1 if late else 2)
    await tenant.has(pod, 2, 9000, 20)


async def test_a_write_that_is_refused_gives_back_what_was_reserved(tenant, pod):
    tenant.world.server.gate(**PATCH, status=403, times=1)
    status, body = await tenant.resize(pod, memoryMiB=9000)
    assert (status, body["reason"]) == (502, "Failed")
    await tenant.has(pod, 1, 4000, 20)
    assert (await tenant.resize(pod, memoryMiB=9000))[0] == 200


async def test_an_allocation_that_somebody_else_changed_meanwhile(tenant, pod):
    world = tenant.world
    gate = world.server.gate(**PATCH)
    asked = world.ask(tenant.resize(pod, memoryMiB=9000))
    await gate.come()
    old = world.annotation(pod, SIGNATURE)
    await world.annotate("pods", "p", namespace="default", allocation_signature="x")
    gate.release()
    status, body = await asked
    assert (status, body["reason"]) == (409, "Conflict")
    await world.annotate("pods", "p", namespace="default", allocation_signature=old)
    await tenant.has(pod, 1, 4000, 20)


async def test_a_pod_that_goes_meanwhile(tenant, pod):
    world = tenant.world
    gate = world.server.gate(**PATCH)
    asked = world.ask(tenant.resize(pod, memoryMiB=9000))
    await gate.come()
    await world.remove(pod)
    gate.release()
    assert (await asked)[0] == 404
    assert await tenant.service.used() == {("n1", "GPU-n1-0"): Amount()}


@pytest.mark.parametrize("memory", [9000, 1000], ids=["grows", "shrinks"])
@pytest.mark.parametrize(
    ("late", "generation"),
    [
        pytest.param(None, 1, id="after it was reserved, before it is written"),
        pytest.param(False, 2, id="while it is on its way"),
        pytest.param(True, 2, id="after it was written, before the answer"),
    ],
)
async def test_killed_at_each_step(tenant, pod, memory, late, generation):
    """One generation is in force, the books say the same, and the request can be made again."""
    world, service = tenant.world, tenant.service
    gate = world.server.gate(**PATCH, late=bool(late), times=None if late is None else 1)
    asked = world.ask(tenant.resize(pod, id="once", memoryMiB=memory))
    await gate.come()
    await service.kill()
    assert isinstance(await asked, Exception), "the caller lost his answer"
    if late is None:
        world.server.front.gates.remove(gate)  # What is held never arrives.
    else:
        gate.release()
        await until("it is written", lambda: tenant.generation(pod) == 2)
    await service.start()
    await tenant.has(pod, generation, memory if generation == 2 else 4000, 20)
    status, body = await tenant.resize(pod, id="once", memoryMiB=memory)
    assert (status, body["generation"]) == (200, 2)
    await tenant.has(pod, 2, memory, 20)
    gate.release()


async def test_stopped_while_it_is_on_its_way(tenant, pod):
    world, service = tenant.world, tenant.service
    gate = world.server.gate(**PATCH)
    asked = world.ask(tenant.resize(pod, id="once", memoryMiB=9000))
    await gate.come()
    stopping = world.ask(service.stop())
    gate.release()
    status, _ = await asked
    assert await stopping == 0
    await service.start()
    await tenant.has(pod, tenant.generation(pod), 9000, 20)
    assert status == 200


async def test_without_keys_nothing_is_resized(world):
    await world.add_nodes("n1")
    service = await world.service()
    tenant = Tenant(world, service, await a_user(world, "tenant"))
    pod = await world.place(service, "p", gpu=1, mem=4000)
    status, body = await tenant.resize(pod, memoryMiB=5000)
    assert (status, body["refusals"][0]["reason"]) == (409, "NotSigned")


async def test_where_the_agent_follows_hami_s_protocol(world):
    file = world.folder / "keys.pem"
    file.write_bytes(new_private_pem())
    await world.add_nodes("n1", locked=True)
    service = await world.service(signing_key_file=file)
    tenant = Tenant(world, service, await a_user(world, "tenant"))
    pod = await world.place(service, "p", gpu=1, mem=4000)
    status, body = await tenant.resize(pod, memoryMiB=5000)
    assert (status, body["refusals"][0]["reason"]) == (409, "LimitsInEnvironment")


@pytest.mark.parametrize("seed", range(2))
async def test_a_storm_of_resizes_refusals_and_kills(tenant, seed):
    """Nothing is ever given twice, and the books are what the pods say, whatever happened."""
    chance = random.Random(seed)
    world, service = tenant.world, tenant.service
    await world.server.create(a_quota("q", mem=15000, cores=90))
    await until("the quota is known", lambda: _quota(tenant, 0))
    pods = [await world.place(service, f"s{n}", gpu=1, mem=2000, cores=10) for n in range(5)]

    async def ask(pod):
        for _ in range(12):
            amounts = {"memoryMiB": chance.randint(1, 8000), "cores": chance.randint(1, 60)}
            with suppress(aiohttp.ClientError, OSError):
                status, body = await tenant.resize(pod, **amounts)
                assert status in (200, 409, 503, 504), body
            await asyncio.sleep(chance.uniform(0, 0.02))

    for name in ("s0", "s2"):
        world.server.gate(method="PATCH", suffix=f"/{name}", late=name == "s2", status=500, times=3)
    asked = [asyncio.create_task(ask(pod)) for pod in pods]
    for _ in range(2):
        await asyncio.sleep(chance.uniform(0.05, 0.2))
        await service.kill()
        await service.start()
    await asyncio.gather(*asked)
    await world.agree(service)
    (quota,) = await service.each("quotas")
    assert all(limit["used"] <= limit["hard"] for limit in quota["limits"].values()), quota
    for pod in pods:
        assert (await tenant.resize(pod, memoryMiB=100, cores=1))[0] == 200
    await world.agree(service)
    assert await service.used() == {("n1", "GPU-n1-0"): Amount(5, 500, 5)}
