"""Whoever reaches ``/filter``, ``/preempt`` and ``/bind`` gains nothing by lying: what is reserved, bound and
signed is what the API server's pod asks for.
"""

from __future__ import annotations

import copy

import msgspec
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from hami.domain.kubernetes.objects import Pod
from hami.policy.pods.accounting import account_of
from hami.signing import Signer, Verified
from hami.vendors.registry import load_vendors

from ..world.objects import a_container, a_quota
from ..world.recount import ALLOCATED, Amount

DEVICE = ("n1", "GPU-n1-0")
ASKED = Amount(1, 3000, 20)
MINE = {"gpu": 1, "mem": 3000, "cores": 20}


def limits(**asks):
    return lambda pod: pod["spec"].update(containers=[a_container(**asks)])


def spec(**fields):
    return lambda pod: pod["spec"].update(fields)


def metadata(**fields):
    return lambda pod: pod["metadata"].update(fields)


def annotations(**texts):
    written = {f"hami.io/{key.replace('_', '-')}": text for key, text in texts.items()}
    return metadata(annotations=written)


NOTHING_GAINED = [
    pytest.param(limits(gpu=1, mem=1), id="less memory"),
    pytest.param(limits(gpu=1, mem=16000, cores=100), id="the whole device"),
    pytest.param(limits(gpu=1, percent=1), id="a percentage"),
    pytest.param(limits(gpu=2, mem=3000), id="more devices"),
    pytest.param(limits(), id="no device"),
    pytest.param(spec(containers=[]), id="no container"),
    pytest.param(spec(containers=None, initContainers=7), id="no pod at all"),
    pytest.param(spec(initContainers=[a_container("i", gpu=1, mem=16000)]), id="an init container"),
    pytest.param(spec(nodeName="n2"), id="bound elsewhere"),
    pytest.param(spec(schedulerName="default-scheduler"), id="another scheduler's"),
    pytest.param(spec(priority=2_000_000_000, priorityClassName="system"), id="priority"),
    pytest.param(metadata(name="other"), id="another name"),
    pytest.param(metadata(namespace="rich"), id="another namespace"),
    pytest.param(metadata(deletionTimestamp="2026-01-01T00:00:00Z"), id="on its way out"),
    pytest.param(metadata(labels={"hami.io/vgpu-node": "n2"}), id="labels"),
    pytest.param(annotations(vgpu_devices_allocated="GPU-n1-0,NVIDIA,1,0:;"), id="an allocation"),
    pytest.param(annotations(allocation_signature="a.1.b"), id="a signature"),
    pytest.param(annotations(node_scheduler_policy="spread"), id="a policy"),
    pytest.param(lambda pod: pod.update(status={"phase": "Succeeded"}), id="ended"),
    pytest.param(lambda pod: pod.pop("spec"), id="no spec"),
]


@pytest.fixture
async def signing(world):
    """A service that signs, and who can verify it."""
    pem = Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file = world.folder / "key.pem"
    file.write_bytes(pem)
    await world.add_nodes("n1", "n2")
    await world.add_namespace("rich")
    await world.server.create(a_quota("limit", gpu=5, mem=3000, cores=20))
    return await world.service(signing_key_file=file), Signer.from_pem(pem)


@pytest.mark.parametrize("lie", NOTHING_GAINED)
async def test_what_a_body_says_of_its_pod_is_not_believed(world, signing, lie):
    service, signer = signing
    pod = await world.add_pod("p", **MINE)
    forged = copy.deepcopy(pod)
    lie(forged)
    answer = await world.filter(service, forged, "n1")
    assert answer.node == "n1", answer
    assert (await service.used())[DEVICE] == ASKED
    assert await world.bind(service, pod, "n1") == ""
    bound = world.pod("p")
    assert bound["metadata"]["annotations"][ALLOCATED] == "GPU-n1-0,NVIDIA,3000,20:;"
    assert signer.verify(
        pod["metadata"]["uid"],
        allocation_of(bound),
        bound["metadata"]["annotations"]["hami.io/allocation-signature"],
    ) == Verified(1)
    await world.agree(service)


@pytest.mark.parametrize("lie", NOTHING_GAINED)
async def test_a_lie_about_a_pod_gets_nobody_evicted_for_it(world, signing, lie):
    service, _ = signing
    await world.set_quota("limit", gpu=5, mem=30000, cores=90)
    low = await world.place(service, "low", gpu=1, mem=5000)
    node = world.pod("low")["spec"]["nodeName"]
    other = await world.add_pod("other", gpu=1, mem=6000)
    assert (await world.filter(service, other, node)).node == node
    pod = await world.add_pod("p", gpu=1, mem=11000)
    forged = copy.deepcopy(pod)
    lie(forged)
    assert await world.preempt(service, forged, **{node: [low]}) == []
    assert await world.preempt(service, forged, **{node: [low, other]}) == [node]
    await world.bind(service, other, node)
    await world.agree(service)


def allocation_of(pod):
    account = account_of(msgspec.convert(pod, Pod), load_vendors())
    assert account is not None
    return account.allocation


async def test_another_pods_uid_reserves_for_that_pod(world, signing):
    service, _ = signing
    mine = await world.add_pod("mine", gpu=1, mem=1000)
    theirs = await world.add_pod("theirs", gpu=1, mem=2000)
    forged = copy.deepcopy(mine)
    forged["metadata"]["uid"] = theirs["metadata"]["uid"]
    await world.filter(service, forged, "n1")
    assert (await service.used())[DEVICE] == Amount(1, 2000, 0)


@pytest.mark.parametrize("uid", ["", "nobody's"])
async def test_a_pod_that_is_not_there_gets_nothing(world, signing, uid):
    service, _ = signing
    pod = await world.add_pod("p", **MINE)
    forged = copy.deepcopy(pod)
    forged["metadata"]["uid"] = uid
    assert "is not seen yet" in (await world.filter(service, forged, "n1")).error
    assert (await service.used())[DEVICE] == Amount()


@pytest.mark.parametrize(
    ("field", "text"),
    [("name", "other"), ("namespace", "rich"), ("uid", "nobody's")],
)
async def test_a_bind_of_another_pod_than_its_uid_says_is_refused(world, signing, field, text):
    service, _ = signing
    pod = await world.add_pod("p", **MINE)
    await world.filter(service, pod, "n1")
    forged = copy.deepcopy(pod)
    forged["metadata"][field] = text
    assert "there is no pod" in await world.bind(service, forged, "n1")
    assert not world.node_of(pod)


async def test_a_bind_to_a_node_without_room_is_refused(world, signing):
    """Nobody has filtered it for this node."""
    service, _ = signing
    await world.set_quota("limit", gpu=5, mem=99000, cores=99)
    await world.place(service, "full", gpu=1, mem=16000)
    full = world.pod("full")["spec"]["nodeName"]
    pod = await world.add_pod("p", **MINE)
    assert "CardInsufficientMemory" in await world.bind(service, pod, full)
    assert not world.node_of(pod)
