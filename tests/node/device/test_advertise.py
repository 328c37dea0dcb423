"""The node's annotations: written when they change, restored, and never taken for written."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from datetime import datetime

import pytest
from msgspec.structs import replace

from hami.domain.devices import Device
from hami.domain.units import DeviceId, MemoryMiB, VendorKey
from hami.hookspecs import hookimpl
from hami.kube.pace import Backoff
from hami.node.device.advertise import Advertiser
from hami.policy.profile import defaults
from hami.policy.profile.profile_vendor import ProfileVendor
from hami.vendors.registry import Vendors
from hami.wire.codecs import decode_register_json

from ...kube.fake_api import connected, serving, until

REGISTER, SCORE = "acme.com/register", "acme.com/score"
HANDSHAKE, IDENTITY = "acme.com/handshake", "hami.io/node-identity"
AT = datetime.fromisoformat("2026-01-01 12:00:00")
NEVER, AT_ONCE = 3600.0, 0.0


class Acme(ProfileVendor):
    """Publishes a score beside its register when told."""

    def __init__(self, liveness: str, key: str = "ACME") -> None:
        super().__init__(f"""
profiles:
- key: {key}
  resources: {{count: {key.lower()}.com/gpu}}
  node_annotations: {{register: {key.lower()}.com/register, handshake: {key.lower()}.com/handshake}}
  pod_annotations: {{allocated: {key.lower()}.com/allocated}}
  liveness: {liveness}
""")
        self.score = ""
        self.fails = False

    @hookimpl
    def hami_node_annotations(self, profile, devices):
        if self.fails:
            raise RuntimeError("no answer")
        more = {SCORE: self.score} if self.score else {}
        return {**defaults.node_annotations(profile, devices), **more}


def a_device(id: str = "d0", *, healthy: bool = True) -> Device:
    return Device(
        id=DeviceId(id), vendor=VendorKey("ACME"), memory_mib=MemoryMiB(100), healthy=healthy
    )


class World:
    def __init__(self, api, client, liveness: str) -> None:
        self.api, self.client = api, client
        self.acme = Acme(liveness)
        self.problems: list[str] = []

    def advertiser(
        self,
        *,
        every: float = NEVER,
        key: str = "ACME",
        liveness: str = "",
        identity="kubelet",
        **more,
    ) -> Advertiser:
        plugin = self.acme if key == "ACME" else Acme("capacity", key)
        vendor = Vendors.of({"acme": plugin})[VendorKey(key)]
        return Advertiser(
            self.client, "n1", vendor, identity, on_problem=self.problems.append, every=every,
            now=lambda: AT, backoff=Backoff(first=0.001, most=0.01), **more,
        )  # fmt: skip

    def node(self, **annotations: str) -> None:
        known = self.api.objects["nodes"].get(("", "n1"))
        had = known["metadata"].get("annotations", {}) if known else {}
        self.api.put("nodes", "n1", metadata={"annotations": had | annotations}, status={"x": "y"})

    def drop(self, *keys: str) -> None:
        had = self.api.objects["nodes"]["", "n1"]["metadata"]["annotations"]
        left = {key: text for key, text in had.items() if key not in keys}
        self.api.put("nodes", "n1", metadata={"annotations": left})

    @property
    def says(self) -> dict[str, str]:
        return self.api.objects["nodes"]["", "n1"]["metadata"].get("annotations", {})

    @property
    def writes(self) -> list:
        return self.api.calls("PATCH", "/nodes/n1")

    def register(self) -> list[Device]:
        devices = decode_register_json(self.says[REGISTER], annotation="", vendor=VendorKey("ACME"))
        assert isinstance(devices, tuple)
        return list(devices)


@pytest.fixture(params=["capacity"])
async def world(request, tmp_path):
    async with serving() as api, connected(tmp_path, api) as client:
        world = World(api, client, request.param)
        world.node(other="kept")
        yield world


with_handshake = pytest.mark.parametrize("world", ["handshake"], indirect=True)


@asynccontextmanager
async def running(*advertisers: Advertiser):
    async with asyncio.TaskGroup() as tasks:
        started = [tasks.create_task(advertiser.run()) for advertiser in advertisers]
        yield
        for task in started:
            task.cancel()


async def published(advertiser: Advertiser, *devices: Device) -> None:
    advertiser.set_devices(devices)
    async with asyncio.timeout(20):
        await advertiser.published.wait()


async def test_devices_and_identity_in_one_write_through_status(world):
    advertiser = world.advertiser()
    async with running(advertiser):
        await published(advertiser, a_device())
    assert world.register() == [a_device()]
    assert world.says[IDENTITY] == "ACME=kubelet"
    assert world.says["other"] == "kept"
    assert [write.path for write in world.writes] == ["/api/v1/nodes/n1/status"]
    assert HANDSHAKE not in world.says


async def test_what_saves_pods_the_lock_is_not_said_before_somebody_vouches_for_it(world):
    vouched = asyncio.Event()
    advertiser = world.advertiser(vouched=vouched.is_set)
    async with running(advertiser):
        await published(advertiser, a_device())
        assert IDENTITY not in world.says
        vouched.set()
        advertiser.look_again()
        await until(lambda: world.says.get(IDENTITY) == "ACME=kubelet")


async def test_what_is_vouched_for_while_a_write_is_under_way_is_written_at_once(
    world, monkeypatch
):
    """And not after the 30 s that a change of somebody else's waits."""
    vouched = asyncio.Event()
    advertiser = world.advertiser(vouched=vouched.is_set)
    patch = world.client.patch

    async def slow(*arguments, **options):
        written = await patch(*arguments, **options)
        if not vouched.is_set():
            vouched.set()
            advertiser.look_again()
        return written

    monkeypatch.setattr(world.client, "patch", slow)
    async with running(advertiser):
        await published(advertiser, a_device())
        await until(lambda: world.says.get(IDENTITY) == "ACME=kubelet")


async def test_the_mode_lock_is_said_whether_or_not_anybody_vouches(world):
    advertiser = world.advertiser(identity="lock", vouched=lambda: False)
    async with running(advertiser):
        await published(advertiser, a_device())
    assert world.says[IDENTITY] == "ACME=lock"


@pytest.mark.parametrize(
    ("identity", "before", "after"),
    [
        ("kubelet", "ACME=kubelet", None),
        ("kubelet", "BOLT=kubelet,ACME=kubelet,CAMB=lock", "BOLT=kubelet,CAMB=lock"),
        ("kubelet", "BOLT=kubelet", "BOLT=kubelet"),
        ("lock", "ACME=lock", "ACME=lock"),
    ],
)
async def test_who_ends_takes_back_what_it_said_and_nothing_else(world, identity, before, after):
    world.node(**{IDENTITY: before})
    await world.advertiser(identity=identity).withdraw()
    assert world.says.get(IDENTITY) == after
    assert world.problems == []


async def test_what_cannot_be_taken_back_is_told(world):
    world.node(**{IDENTITY: "ACME=kubelet"})
    world.api.refuse("nodes/n1", 403, method="PATCH", times=10)
    await world.advertiser().withdraw()
    assert world.says[IDENTITY] == "ACME=kubelet"
    (problem,) = world.problems
    assert "cannot take hami.io/node-identity off node n1" in problem


async def test_nothing_is_written_before_the_devices_are_known(world):
    advertiser = world.advertiser(every=AT_ONCE)
    async with running(advertiser):
        await until(lambda: advertiser._live is not None)
        world.node(something="else")
        await until(lambda: "something" in advertiser._live.annotations)
    assert world.writes == []
    assert not advertiser.published.is_set()


async def test_a_restart_writes_nothing_anew(world):
    for _ in range(2):
        advertiser = world.advertiser()
        async with running(advertiser):
            await published(advertiser, a_device())
    assert len(world.writes) == 1


async def test_a_change_is_written_at_once_and_an_equal_list_never(world):
    advertiser = world.advertiser()
    async with running(advertiser):
        await published(advertiser, a_device())
        advertiser.set_devices([a_device()])
        assert advertiser.published.is_set()
        await published(advertiser, a_device(healthy=False))
        await published(advertiser, a_device(healthy=False), a_device("d1"))
    assert [(d.id, d.healthy) for d in world.register()] == [("d0", False), ("d1", True)]
    assert len(world.writes) == 3


async def test_what_somebody_removed_comes_back(world):
    advertiser = world.advertiser(every=AT_ONCE)
    async with running(advertiser):
        await published(advertiser, a_device())
        world.drop(REGISTER)
        await until(lambda: REGISTER in world.says)
        world.drop(IDENTITY)
        await until(lambda: IDENTITY in world.says)
        world.node(**{REGISTER: "nonsense"})
        await until(lambda: world.says[REGISTER] != "nonsense")
    assert world.register() == [a_device()]


async def test_but_not_again_and_again(world):
    advertiser = world.advertiser(every=NEVER)
    async with running(advertiser):
        await published(advertiser, a_device())
        for _ in range(3):
            world.drop(REGISTER)
            await until(lambda: REGISTER not in advertiser._live.annotations)
        assert len(world.writes) == 1
        # A change of ours does not wait behind it.
        await published(advertiser, a_device(healthy=False))
    assert len(world.writes) == 2
    assert not world.register()[0].healthy


async def test_what_is_not_wanted_any_more_is_removed(world):
    advertiser = world.advertiser()
    async with running(advertiser):
        world.acme.score = "7"
        await published(advertiser, a_device())
        assert world.says[SCORE] == "7"
        world.acme.score = ""
        await published(advertiser, a_device())
        assert SCORE not in world.says
        await published(advertiser, a_device(healthy=False))
    assert SCORE not in world.says
    assert world.says["other"] == "kept"


async def test_a_vendor_that_fails_keeps_what_is_published_and_is_told_once(world):
    advertiser = world.advertiser()
    async with running(advertiser):
        await published(advertiser, a_device())
        world.acme.fails = True
        advertiser.set_devices([a_device(healthy=False)])
        advertiser.set_devices([a_device(healthy=False)])
        assert advertiser.published.is_set()
        assert world.register() == [a_device()]
        assert len(world.problems) == 1
        assert "no answer" in world.problems[0]
        world.acme.fails = False
        await published(advertiser, a_device(healthy=False))
    assert not world.register()[0].healthy


# Trouble with the API server.


@pytest.mark.parametrize("status", [403, 409, 422, 429, 500, 503])
@pytest.mark.parametrize("after", [False, True], ids=["refused", "answer lost"])
async def test_it_is_written_in_the_end_and_not_before(world, status, after):
    world.api.refuse("nodes/n1/status", status, method="PATCH", times=3, after=after)
    advertiser = world.advertiser()
    async with running(advertiser):
        await published(advertiser, a_device())
    assert world.register() == [a_device()]
    assert len(world.writes) == (1 if after else 4)
    assert len(world.problems) == (status != 409)


async def test_an_account_without_the_right_gets_its_remedy(world):
    world.api.refuse("nodes/n1/status", 403, method="PATCH", times=1)
    advertiser = world.advertiser()
    async with running(advertiser):
        await published(advertiser, a_device())
    assert "allow our account to patch nodes/status" in world.problems[0]


async def test_a_server_that_is_away_altogether(world):
    advertiser = world.advertiser()
    async with running(advertiser):
        await until(lambda: advertiser._live is not None)
        world.api.refuse("nodes", 503, times=6)
        await published(advertiser, a_device())
    assert world.register() == [a_device()]


async def test_a_change_while_a_write_is_under_way_is_written_too(world):
    advertiser = world.advertiser()
    patch = world.client.patch

    async def slow(*arguments, **options):
        answer = await patch(*arguments, **options)
        world.client.patch = patch
        advertiser.set_devices([a_device(healthy=False)])
        return answer

    world.client.patch = slow
    async with running(advertiser):
        advertiser.set_devices([a_device()])
        await until(lambda: REGISTER in world.says and not world.register()[0].healthy)
        await advertiser.published.wait()
    assert len(world.writes) == 2


async def test_a_node_that_is_made_anew_gets_its_annotations_again(world):
    advertiser = world.advertiser(every=AT_ONCE)
    async with running(advertiser):
        await published(advertiser, a_device())
        world.api.remove("nodes", "n1")
        await until(lambda: advertiser._live is None)
        world.node()
        await until(lambda: REGISTER in world.says)


# Several agents on one node.


async def test_agents_of_two_vendors_do_not_lose_each_others_identity(world):
    """Both read, both write: the second must not write over what it has not seen."""
    one, two = world.advertiser(), world.advertiser(key="BOLT", identity="lock")
    patch, both = world.client.patch, asyncio.Barrier(2)

    async def together(*arguments, **options):
        if both.n_waiting < 2 and not gone.is_set():
            await both.wait()
            gone.set()
        return await patch(*arguments, **options)

    gone = asyncio.Event()
    world.client.patch = together
    async with running(one, two):
        await asyncio.gather(
            published(one, a_device()),
            published(two, replace(a_device(), vendor=VendorKey("BOLT"))),
        )
    assert set(world.says[IDENTITY].split(",")) == {"ACME=kubelet", "BOLT=lock"}


# The handshake.


@with_handshake
@pytest.mark.parametrize(
    "text", ["", "Requesting_2026-01-01 11:00:00", "Deleted_2026-01-01 11:00:00"]
)
async def test_a_scheduler_that_asks_is_answered(world, text):
    if text:
        world.node(**{HANDSHAKE: text})
    advertiser = world.advertiser()
    async with running(advertiser):
        await published(advertiser, a_device())
    assert world.says[HANDSHAKE] == "Reported 2026-01-01 12:00:00"
    assert len(world.writes) == 1


@with_handshake
async def test_and_again_when_it_asks_again(world):
    advertiser = world.advertiser(every=AT_ONCE)
    async with running(advertiser):
        await published(advertiser, a_device())
        for _ in range(3):
            world.node(**{HANDSHAKE: "Requesting_2026-01-01 11:00:00"})
            await until(lambda: world.says[HANDSHAKE].startswith("Reported"))


@with_handshake
async def test_an_answer_that_stands_is_not_renewed(world):
    world.node(**{HANDSHAKE: "Reported 2025-01-01 12:00:00 +0800 CST"})
    advertiser = world.advertiser(every=AT_ONCE)
    async with running(advertiser):
        await published(advertiser, a_device())
    assert world.says[HANDSHAKE] == "Reported 2025-01-01 12:00:00 +0800 CST"


async def test_who_lives_by_its_capacity_does_not_answer(world):
    world.node(**{HANDSHAKE: "Requesting_2026-01-01 11:00:00"})
    advertiser = world.advertiser(every=AT_ONCE)
    async with running(advertiser):
        await published(advertiser, a_device())
    assert world.says[HANDSHAKE] == "Requesting_2026-01-01 11:00:00"


async def test_the_answer_waits_for_its_time(world):
    """A scheduler asks every 15 s; one write in 30 s says that we live."""
    world.acme = Acme("handshake")
    advertiser = world.advertiser(every=NEVER)
    async with running(advertiser):
        await published(advertiser, a_device())
        world.node(**{HANDSHAKE: "Requesting_2026-01-01 11:00:00"})
        await until(lambda: advertiser._live.annotations[HANDSHAKE].startswith("Requesting"))
        assert len(world.writes) == 1
