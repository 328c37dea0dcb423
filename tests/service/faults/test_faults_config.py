"""The device configuration changes while the service runs."""

from __future__ import annotations

import json

import pytest

from ..world.objects import a_quota
from ..world.process import until
from ..world.recount import Amount


@pytest.fixture
async def configured(world):
    """A service with a file, and what writes the file."""
    file = world.folder / "devices.yaml"

    def write(**section):
        file.write_text(json.dumps({"nvidia": section}))

    write()
    await world.add_nodes("n1")
    return await world.service(device_config_file=file), write, file


async def logged(service, event):
    """The lines of the log with this event, once there is one."""

    def found():
        return [line for line in service.logged() if line["event"] == event]

    return await until(f"{event!r} is logged", found, story=service.last_lines)


async def taken_over(service):
    await logged(service, "the configuration has changed")


async def test_another_memory_factor_counts_for_new_pods_and_quotas(world, configured):
    service, write, _ = configured
    await world.server.create(a_quota("q", mem=12))
    runs = await world.add_pod("runs", gpu=1, mem=5)
    await world.filter_until(service, runs)
    assert await world.bind(service, runs, "n1") == ""
    write(memoryFactor=1000)
    await taken_over(service)
    assert await service.used() == {("n1", "GPU-n1-0"): Amount(1, 5, 0)}, "what runs stays as it is"
    (quota,) = await service.each("quotas")
    assert quota["limits"]["limits.nvidia.com/gpumem"] == {"hard": 12000, "used": 5, "left": 11995}
    pod = await world.add_pod("p", gpu=1, mem=7)
    await world.filter_until(service, pod)
    assert await world.bind(service, pod, "n1") == ""
    refused = await world.add_pod("refused", gpu=1, mem=5)
    await until("it is seen", lambda: _seen(service, refused))
    assert "ResourceQuotaNotFit" in (await world.filter(service, refused)).reasons["n1"]
    assert await service.used() == {("n1", "GPU-n1-0"): Amount(2, 7005, 0)}


async def _seen(service, pod):
    return (await service.text(f"/api/v1/pods/default/{pod['metadata']['name']}/why"))[0] == 200


async def test_other_resource_names(world, configured):
    service, write, _ = configured
    old = await world.add_pod("old", gpu=1, mem=9000)
    await world.filter_until(service, old)
    write(resourceCountName="acme.com/gpu", resourceMemoryName="acme.com/mem")
    await taken_over(service)
    new = await world.server.create(
        {
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "new", "namespace": "default"},
            "spec": {"schedulerName": "hami-scheduler", "containers": [{
                "name": "main", "image": "x",
                "resources": {"limits": {"acme.com/gpu": "1", "acme.com/mem": "3000"}},
            }]},
        }
    )  # fmt: skip
    # The node's agent speaks of the new name, too: its devices live by it.
    capacity = {"acme.com/gpu": "10", "pods": "200"}
    status = {"status": {"allocatable": capacity, "capacity": capacity}}
    await world.server.patch("nodes", "n1", status, subresource="status")
    await world.filter_until(service, new, "n1")
    assert await world.bind(service, new, "n1") == ""
    assert (await world.filter(service, old, "n1")).node == "n1", "it asks for nothing of ours now"


async def test_what_was_promised_stays_promised(world, configured):
    service, write, _ = configured
    pod = await world.add_pod("p", gpu=1, mem=9000)
    await world.filter_until(service, pod)
    write(defaultMemory=100)
    await taken_over(service)
    assert await service.used() == {("n1", "GPU-n1-0"): Amount(1, 9000, 0)}
    assert await world.bind(service, pod, "n1") == ""
    await world.agree(service)


async def test_a_change_while_a_binding_is_on_its_way(world, configured):
    service, write, _ = configured
    pod = await world.add_pod("p", gpu=1, mem=9000)
    await world.filter_until(service, pod)
    gate = world.server.gate()
    binding = world.ask(world.bind(service, pod, "n1"))
    await gate.come()
    write(memoryFactor=2)
    await taken_over(service)
    gate.release()
    assert await binding == ""
    await world.agree(service)


async def test_a_waiting_pod_is_woken_when_it_fits_now(world, configured):
    """Defaults decide what a pod without a size asks for: nothing in the cluster changes."""
    service, write, _ = configured
    await world.place(service, "runs", gpu=1, mem=9000)
    pod = await world.add_pod("whole", gpu=1)
    await until("it is seen", lambda: _seen(service, pod))
    assert "CardInsufficientMemory" in (await world.filter(service, pod)).reasons["n1"]
    write(defaultMemory=2000)
    await until("it is woken", lambda: world.annotation(pod, "wake-up"), story=service.last_lines)
    assert (await world.filter(service, pod)).node == "n1"
    assert await world.bind(service, pod, "n1") == ""
    await world.agree(service)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param("nvidia: [", "devices.yaml", id="no YAML"),
        pytest.param("nvidia: {memoryFactor: many}", "memoryFactor", id="a wrong value"),
        pytest.param(
            "nvidia: {resourceMemoryName: nvidia.com/gpu}", "two resources", id="a contradiction"
        ),
    ],
)
async def test_a_broken_file_is_refused_and_the_old_one_stays(world, configured, text, says):
    service, write, file = configured
    await world.place(service, "p0", gpu=1, mem=3000)
    file.write_text(text)
    (line,) = await logged(service, "the configuration stays as it was")
    assert says in line["problem"]
    await world.place(service, "p1", gpu=1, mem=3000)
    await world.agree(service)
    write(memoryFactor=2)
    await taken_over(service)
    pod = await world.add_pod("p2", gpu=1, mem=1000)
    await world.filter_until(service, pod)
    assert await service.used() == {("n1", "GPU-n1-0"): Amount(3, 8000, 0)}
