"""Signed allocations: made with the first key, verified with all, and what an edit comes to."""

from __future__ import annotations

from functools import partial

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ..world.process import until
from ..world.recount import ALLOCATED, Amount

SIGNATURE = "hami.io/allocation-signature"


def a_key():
    return Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


@pytest.fixture
async def signing(world):
    """A service with a key file, and what writes that file."""
    file = world.folder / "keys.pem"
    keys = [a_key()]

    def write(*pems):
        file.write_bytes(b"".join(pems))

    write(*keys)
    await world.add_nodes("n1", devices=2)
    return await world.service(signing_key_file=file), write, keys[0]


def signature(world, pod):
    return world.pod(pod["metadata"]["name"])["metadata"]["annotations"][SIGNATURE]


def key_of(world, pod):
    return signature(world, pod).partition(".")[0]


async def edit(world, pod, change):
    name = pod["metadata"]["name"]
    annotations = world.pod(name)["metadata"]["annotations"]
    patch = {"metadata": {"annotations": change(annotations)}}
    await world.server.patch("pods", name, patch, namespace="default")


async def said(world, text):
    await until(
        f"an event says {text!r}", lambda: any(text in e for e in world.events("UnknownUsage"))
    )


async def restarted(service):
    await service.kill()
    await service.start()


async def test_an_allocation_is_signed_and_verified_after_a_restart(world, signing):
    service, _, _ = signing
    pod = await world.place(service, "p", gpu=1, mem=3000)
    key, generation, value = signature(world, pod).split(".")
    assert key
    assert generation == "1"
    assert len(value) == 86, "64 bytes of base64"
    await restarted(service)
    await world.agree(service)
    assert all(device["known"] for device in await service.each("devices"))
    assert world.events("UnknownUsage") == []


async def test_keys_are_rotated_while_it_runs(world, signing):
    """Both verify as long as both are there; the first one signs."""
    service, write, old = signing
    first = await world.place(service, "first", gpu=1, mem=1000)
    new = a_key()
    write(new, old)

    async def signs_anew():
        pod = await world.place(service, "probe", gpu=1, mem=100)
        key = key_of(world, pod)
        await world.remove(pod)
        return key != key_of(world, first)

    await until("the new key signs", signs_anew)
    await world.place(service, "second", gpu=1, mem=1000)
    await restarted(service)
    await world.agree(service)
    assert all(device["known"] for device in await service.each("devices"))
    # Once the old key is gone, what it signed is nobody's word any more.
    write(new)
    await restarted(service)
    await said(world, "default/first")
    await world.agree(service)
    assert not any("default/second" in text for text in world.events("UnknownUsage"))


async def test_of_unsigned_allocations_that_a_start_finds_each_owner_is_told(world, signing):
    service, _, _ = signing
    pods = [await world.place(service, f"p{n}", gpu=1, mem=100) for n in range(4)]
    await service.kill()
    for pod in pods:
        await edit(world, pod, lambda _: {SIGNATURE: None})
    await service.start()

    def told():
        return {text.split()[1] for text in world.events("UnsignedAllocation")}

    names = {f"default/p{n}" for n in range(4)}
    await until("each is told", lambda: told() == names, story=service.last_lines)
    lines = [line for line in service.logged() if line.get("reason") == "UnsignedAllocation"]
    assert [line["count"] for line in lines] == [4], "the log has one line"
    await world.agree(service)


async def test_a_replica_that_gets_the_new_key_later_takes_back_what_it_thought(world):
    """A mounted Secret reaches one machine a minute before the other."""
    await world.add_nodes("n1")
    old, new = a_key(), a_key()
    for name, pems in {"early": new + old, "late": old}.items():
        (world.folder / f"{name}.pem").write_bytes(pems)
    early = await world.service("early", signing_key_file=world.folder / "early.pem")
    late = await world.service("late", signing_key_file=world.folder / "late.pem")
    pod = await world.place(early, "p", gpu=1, mem=1000)
    await said(world, "default/p")
    await world.set_status(pod, phase="Running")
    (memory,) = {d["memoryMiB"] for d in await late.each("devices")}
    other = await world.add_pod("other", gpu=1, mem=memory - 1000)
    # As much again as it says may be in use, as long as nobody knows whether that is true.
    await until("it is not believed", lambda: _refused(world, late, other))
    (world.folder / "late.pem").write_bytes(new + old)
    await world.filter_until(late, other)
    assert (await late.used())["n1", "GPU-n1-0"] == Amount(2, memory, 0)
    await world.remove(other)
    await world.agree(late)
    assert world.node_of(pod) == "n1"


async def _refused(world, service, pod):
    return "n1" in (await world.filter(service, pod)).reasons


async def test_a_broken_key_file_changes_nothing(world):
    await world.add_nodes("n1")
    contents = {
        "empty": b"",
        "nonsense": b"nonsense",
        "cut": b"-----BEGIN PRIVATE KEY-----\nAAAA\n",
    }
    services, key = {}, a_key()
    for name in contents:
        file = world.folder / f"{name}.pem"
        file.write_bytes(key)
        services[name] = await world.service(name, signing_key_file=file)
    before = {
        name: await world.place(services[name], f"{name}-1", gpu=1, mem=100) for name in contents
    }
    for name, content in contents.items():
        (world.folder / f"{name}.pem").write_bytes(content)
    for name, service in services.items():
        told = partial(refused, service, f"{name}.pem")
        await until("it is told", told, story=service.last_lines)
        after = await world.place(service, f"{name}-2", gpu=1, mem=100)
        assert key_of(world, before[name]) == key_of(world, after)


def refused(service, file):
    problems = [line.get("problem", "") for line in service.logged()]
    return any(file in text and "stay in use" in text for text in problems)


def smaller(annotations):
    return {ALLOCATED: annotations[ALLOCATED].replace(",9000,", ",1,")}


def elsewhere(annotations):
    text = annotations[ALLOCATED]
    other = (
        text.replace("GPU-n1-0", "GPU-n1-9")
        .replace("GPU-n1-1", "GPU-n1-0")
        .replace("GPU-n1-9", "GPU-n1-1")
    )
    return {ALLOCATED: other}


def removed(_):
    return {ALLOCATED: None}


def forged(annotations):
    key, generation, value = annotations[SIGNATURE].split(".")
    return {SIGNATURE: f"{key}.{generation}.{value[:-4]}AAAA", **smaller(annotations)}


EDITS = [
    pytest.param(smaller, id="a smaller size"),
    pytest.param(elsewhere, id="another device"),
    pytest.param(removed, id="no allocation"),
    pytest.param(forged, id="another signature"),
]


@pytest.mark.parametrize("change", EDITS)
async def test_an_edit_lowers_nothing_and_is_told(world, signing, change):
    service, _, _ = signing
    pod = await world.place(service, "p", gpu=1, mem=9000)
    (before,) = (key for key, amount in (await service.used()).items() if amount.memory)
    world.books.following = False
    await edit(world, pod, change)
    await said(world, "default/p")
    assert (await service.used())[before] == Amount(1, 9000, 0)
    other = await world.add_pod("other", gpu=2, mem=9000)
    assert not (await world.filter(service, other)).node, "its devices are taken all the same"


@pytest.mark.parametrize("change", EDITS)
async def test_after_a_restart_what_an_edited_pod_asks_for_is_kept_free_until_it_is_gone(
    world, signing, change
):
    """Nobody remembers which device it was: no new pod may rely on what it says."""
    service, _, _ = signing
    pod = await world.place(service, "p", gpu=1, mem=9000)
    await world.set_status(pod, phase="Running")
    world.books.following = False
    await edit(world, pod, change)
    await restarted(service)
    await said(world, "default/p")

    (memory,) = {d["memoryMiB"] for d in await service.each("devices")}
    left = memory - 9000
    for number in (0, 1):
        only = {"nvidia.com/use-gpuuuid": f"GPU-n1-{number}"}
        large = await world.add_pod(f"large-{number}", gpu=1, mem=left + 1, annotations=only)
        await until(
            "it keeps what it asks for on each device",
            lambda pod=large: _refused(world, service, pod),
            story=service.last_lines,
        )
        await world.remove(large)
    both = await world.add_pod("both", gpu=2, mem=left + 1)
    assert await _refused(world, service, both)
    await world.remove(pod)
    await world.filter_until(service, both)


async def test_an_unsigned_pod_of_before_is_charged_as_it_says(world, signing):
    """HAMi bound it: the cards are in use either way."""
    service, _, _ = signing
    await service.kill()
    body = await world.add_pod("old", gpu=1, mem=5000)
    url = f"{world.server.url}/api/v1/namespaces/default/pods/old/binding"
    annotations = {"hami.io/vgpu-node": "n1", ALLOCATED: "GPU-n1-0,NVIDIA,5000,0:;"}
    binding = {
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": "old", "annotations": annotations},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"},
    }  # fmt: skip
    async with world.session.post(url, json=binding) as answer:
        assert answer.status == 201
    await service.start()
    await world.agree(service)
    assert (await service.used())["n1", "GPU-n1-0"] == Amount(1, 5000, 0)
    assert (await world.filter(service, body)).node == "n1"
    await world.place(service, "new", gpu=1, mem=5000)
