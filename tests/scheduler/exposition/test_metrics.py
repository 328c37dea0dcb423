"""What a scrape shows: our own metrics, HAMi's names and labels, in valid text, each series once."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.parser import text_string_to_metric_families

from hami.domain.allocations import ContainerAllocation, ContainerKind, PodAllocation
from hami.domain.devices import Device, Grant, Usage
from hami.domain.kubernetes.objects import Metadata, Pod
from hami.scheduler.bookings.reservations import Phase
from hami.scheduler.exposition.compat.hami_metrics import HamiText, Snapshot
from hami.scheduler.exposition.scrape import Scrape, take_snapshot
from hami.scheduler.metrics import Levels, Metrics

from ..builders import Cluster, a_node, a_pod, a_quota, acme, granted

GIB = 1 << 30
MIB = 1 << 20


@dataclass(frozen=True)
class Line:
    """One sample."""

    name: str
    labels: frozenset[tuple[str, str]]
    value: float


def read(text: bytes | str) -> list[Line]:
    text = text if isinstance(text, str) else text.decode()
    assert text.endswith("\n")
    lines = [
        Line(sample.name, frozenset(sample.labels.items()), sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    ]
    assert [s for s, n in Counter((s.name, s.labels) for s in lines).items() if n > 1] == []
    names = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert sorted(names) == sorted(set(names))
    return lines


def shown(lines: list[Line], name: str) -> dict[tuple[tuple[str, str], ...], float]:
    """Values by labels, without the zone that all have."""
    found = {}
    for line in lines:
        if line.name == name:
            assert ("zone", "vGPU") in line.labels
            found[tuple(sorted(line.labels - {("zone", "vGPU")}))] = line.value
    return found


def device(index: int = 0, node: str = "n1", **more: str) -> tuple[tuple[str, str], ...]:
    labels = {"node": node, "device_uuid": f"{node}-d{index}", "device_index": str(index),
              "device_type": "ACME One"}  # fmt: skip
    return tuple(sorted((labels | more).items()))


def of_pod(pod: str = "p", container: int = 0, uuid: str = "n1-d0", **more: str):
    labels = {"namespace": "default", "node": "n1", "pod": pod, "container_index": str(container),
              "device_uuid": uuid}  # fmt: skip
    return tuple(sorted((labels | more).items()))


async def text(scrape: Scrape) -> bytes:
    return b"".join([piece async for piece in scrape.pieces()])


async def scraped(cluster: Cluster, *, legacy: bool = False) -> list[Line]:
    scrape = Scrape(cluster.state, Metrics(), leading=lambda: True, legacy=legacy)
    first, second = await text(scrape), await text(scrape)
    # Library counters know when they were made; nothing of ours may differ between two scrapes.
    assert first == second
    return read(first)


def a_cluster() -> Cluster:
    """Two devices; a bound pod holds 3000 MiB of the first, a promised one 1000 of some device."""
    cluster = Cluster(a_node(devices=2))
    cluster.sees(granted(a_pod("p", mem=3000, node="n1"), "n1", "n1-d0:3000"))
    return cluster


# HAMi's metrics.


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("hami_gpu_memory_limit_bytes", {device(0): 8000 * MIB, device(1): 8000 * MIB}),
        ("hami_gpu_core_limit_ratio", {device(0): 100, device(1): 100}),
        (
            "hami_gpu_memory_allocated_bytes",
            {device(0, device_cores="100"): 3000 * MIB, device(1, device_cores="100"): 0},
        ),
        ("hami_gpu_shared_count", {device(0): 1, device(1): 0}),
        ("hami_gpu_core_allocated_ratio", {device(0): 0, device(1): 0}),
        (
            "hami_node_gpu_overview",
            {
                device(0, device_cores="100", device_memory_limit="8000"): 3000 * MIB,
                device(1, device_cores="100", device_memory_limit="8000"): 0,
            },
        ),
        ("hami_node_gpu_memory_allocated_ratio", {device(0): 0.375, device(1): 0}),
        ("hami_vgpu_memory_allocated_bytes", {of_pod(): 3000 * MIB}),
        ("hami_vgpu_core_allocated_ratio", {of_pod(): 0}),
    ],
)
async def test_devices_and_pods_have_hamis_names_and_labels(name, expected):
    assert shown(await scraped(a_cluster()), name) == expected


FORMER = {"nodeid": "n1", "deviceuuid": "n1-d0", "deviceidx": "0"}
TYPE = {"devicetype": "ACME One"}
CORES = {"devicecores": "100"}
FORMER_POD = {"podnamespace": "default", "nodename": "n1", "podname": "p", "containeridx": "0",
              "deviceuuid": "n1-d0"}  # fmt: skip
LEGACY = [
    ("GPUDeviceMemoryLimit", FORMER | TYPE, 8000 * MIB),
    ("GPUDeviceCoreLimit", FORMER | TYPE, 100),
    ("GPUDeviceMemoryAllocated", FORMER | TYPE | CORES, 3000 * MIB),
    ("GPUDeviceSharedNum", FORMER | TYPE, 1),
    ("GPUDeviceCoreAllocated", FORMER | TYPE, 0),
    ("nodeGPUOverview", FORMER | TYPE | CORES | {"devicememorylimit": "8000"}, 3000 * MIB),
    ("nodeGPUMemoryPercentage", FORMER, 0.375),
    ("vGPUMemoryAllocated", FORMER_POD, 3000 * MIB),
    ("vGPUCoreAllocated", FORMER_POD, 0),
    ("QuotaUsed", {"quotanamespace": "default", "quotaName": "acme.com/mem", "limit": "0"}, 3000),
]


@pytest.mark.parametrize(("name", "labels", "value"), LEGACY)
async def test_the_former_names_are_there_when_asked_for(name, labels, value):
    found = shown(await scraped(a_cluster(), legacy=True), name)
    assert found[tuple(sorted(labels.items()))] == value


async def test_the_former_names_are_not_there_by_default():
    names = {line.name for line in await scraped(a_cluster())}
    assert names & {name for name, _, _ in LEGACY} == set()


async def test_the_build_is_named_without_a_zone():
    (build,) = [line for line in await scraped(Cluster()) if line.name == "hami_build_info"]
    assert build.value == 1
    assert {name for name, _ in build.labels} == {
        "version", "revision", "build_date", "go_version", "compiler", "platform"
    }  # fmt: skip


async def test_a_promised_pod_is_shown_before_it_is_bound():
    cluster = a_cluster()
    cluster.reserve(a_pod("q", mem=1000))
    found = shown(await scraped(cluster), "hami_vgpu_memory_allocated_bytes")
    assert sorted(found.values()) == [1000 * MIB, 3000 * MIB]


async def test_containers_have_their_own_index():
    """HAMi has shown 0 for every container since it adds them up."""
    pod = granted(a_pod("q", init_mem=500, mem=1000), "n1", "n1-d0:500", "n1-d1:1000")
    cluster = Cluster(a_node(devices=2))
    cluster.sees(pod)
    assert shown(await scraped(cluster), "hami_vgpu_memory_allocated_bytes") == {
        of_pod("q", 0, "n1-d0"): 500 * MIB,
        of_pod("q", 1, "n1-d1"): 1000 * MIB,
    }


async def test_a_pod_and_its_successor_of_the_same_name_are_one_series():
    """HAMi's scrape fails with HTTP 500 then."""
    cluster = a_cluster()
    cluster.sees(granted(a_pod("p", mem=1000, uid="second"), "n1", "n1-d0:1000"))
    found = shown(await scraped(cluster, legacy=True), "hami_vgpu_memory_allocated_bytes")
    assert found == {of_pod(): 4000 * MIB}


@pytest.mark.parametrize(
    ("quotas", "used", "limits"),
    [
        pytest.param([], {("acme.com/mem", "0"): 3000, ("acme.com/gpu", "0"): 1}, {}, id="no quota"),
        pytest.param(
            [a_quota(mem="8k")],
            {("acme.com/mem", "8000"): 3000, ("acme.com/gpu", "0"): 1},
            {"acme.com/mem": 8000},
            id="as HAMi spells its limits: MiB",
        ),
        pytest.param(
            [a_quota("q1", mem="8k"), a_quota("q2", mem="4k", gpu="2")],
            {("acme.com/mem", "4000"): 3000, ("acme.com/gpu", "2"): 1},
            {"acme.com/mem": 4000, "acme.com/gpu": 2},
            id="of several objects the one that leaves least",
        ),
        pytest.param(
            [a_quota(namespace="other", mem="0")],
            {("acme.com/mem", "0"): 3000, ("acme.com/gpu", "0"): 1},
            {},
            id="another namespace's says nothing of this one",
        ),
    ],
)  # fmt: skip
async def test_quota(quotas, used, limits):
    cluster = a_cluster()
    for quota in quotas:
        cluster.state.quota_changed(quota)
    lines = await scraped(cluster)

    def of_default(name):
        rows = [(dict(labels), value) for labels, value in shown(lines, name).items()]
        return [(labels, value) for labels, value in rows if labels["namespace"] == "default"]

    assert {
        (labels["quota_name"], labels["limit"]): value
        for labels, value in of_default("hami_resource_quota_used")
    } == used
    assert {
        labels["quota_name"]: value for labels, value in of_default("hami_resource_quota_limit")
    } == limits


# Snapshots made by hand: what no node of a well-behaved vendor would show.


def a_snapshot(*inventory: tuple[Device, Usage], promised=(), nodes=None) -> Snapshot:
    return Snapshot(
        nodes={"n1": inventory} if nodes is None else nodes,
        charges=(),
        promised=promised,
        quotas=(),
        profiles={profile.key: profile for profile in acme().profiles},
    )


def a_device(id: str = "d0", **fields) -> Device:
    return Device(**{"id": id, "vendor": "ACME", "model": "One", "memory_mib": 1000} | fields)


def test_two_vendors_devices_with_the_same_labels_are_one_series():
    pair = [(a_device(), Usage()), (a_device(vendor="BOLT"), Usage(1, 10, 0))]
    read(HamiText(legacy=True).render(a_snapshot(*pair)))
    other_model = [(a_device(), Usage()), (a_device(vendor="BOLT", model="Two"), Usage())]
    lines = read(HamiText(legacy=True).render(a_snapshot(*other_model)))
    assert len(shown(lines, "hami_gpu_shared_count")) == 2
    assert len(shown(lines, "nodeGPUMemoryPercentage")) == 1


def test_a_device_without_memory_has_no_share_of_it():
    lines = read(HamiText().render(a_snapshot((a_device(memory_mib=0), Usage()))))
    assert shown(lines, "hami_node_gpu_memory_allocated_ratio") == {}
    assert len(shown(lines, "hami_gpu_memory_limit_bytes")) == 1


strange = st.text(st.characters(), max_size=12) | st.sampled_from(
    ['a"b', "a\\b", "a\nb", "\\n", '"', "\\", "é☃"]
)


@given(node=strange, id=strange, model=strange, pod=strange)
def test_every_label_can_be_read_back(node, id, model, pod):
    held = Grant(device_id=id, vendor="ACME", memory_mib=5)
    allocation = PodAllocation(
        node=node,
        containers=(ContainerAllocation(name="c", kind=ContainerKind.APP, grants=(held,)),),
    )
    snapshot = a_snapshot(
        nodes={node: [(a_device(id, model=model), Usage())]},
        promised=[(Pod(metadata=Metadata(name=pod, namespace="ns", uid="u")), allocation)],
    )
    lines = read(HamiText().render(snapshot))
    whole = {"node": node, "device_uuid": id, "device_type": model}
    written = {key: legible(value) for key, value in whole.items()}
    labels = dict(next(iter(shown(lines, "hami_gpu_shared_count"))))
    assert labels == written | {"device_index": "0"}
    (of_this_pod,) = shown(lines, "hami_vgpu_memory_allocated_bytes")
    assert dict(of_this_pod)["pod"] == legible(pod)


def legible(text: str) -> str:
    """As UTF-8 can carry it."""
    return text.encode("utf-8", "replace").decode()


def test_what_was_kept_from_the_last_scrape_changes_nothing():
    """The text of a snapshot is the same whatever was written before it."""
    one, two = a_device("d1"), a_device("d2")
    snapshots = [
        a_snapshot((one, Usage()), (two, Usage())),
        a_snapshot((one, Usage(1, 7, 3)), (two, Usage())),
        a_snapshot((msgspec.structs.replace(one, model="Else"), Usage()), (two, Usage())),
        a_snapshot(nodes={}),
        a_snapshot((two, Usage()), (one, Usage())),
    ]
    kept = HamiText(legacy=True)
    for snapshot in [*snapshots, *reversed(snapshots)]:
        assert kept.render(snapshot) == HamiText(legacy=True).render(snapshot)


async def test_changes_between_scrapes_are_shown():
    cluster = a_cluster()
    scrape = Scrape(cluster.state, Metrics(), leading=lambda: True)
    name = "hami_gpu_memory_allocated_bytes"
    one = device(0, device_cores="100")
    assert shown(read(await text(scrape)), name)[one] == 3000 * MIB
    cluster.sees(granted(a_pod("q", mem=1000), "n1", "n1-d0:1000"))
    assert shown(read(await text(scrape)), name)[one] == 4000 * MIB
    cluster.state.pod_gone(a_pod("p"))
    assert shown(read(await text(scrape)), name)[one] == 1000 * MIB
    cluster.state.node_gone(a_node())
    assert shown(read(await text(scrape)), name) == {}


def test_a_nodes_inventory_is_the_same_object_until_something_changes():
    cluster = a_cluster()
    table = cluster.state.table
    first = table.inventory("n1")
    assert table.inventory("n1") is first
    pod = granted(a_pod("q", mem=1000), "n1", "n1-d0:1000")
    for change in (
        lambda: cluster.sees(pod),
        lambda: cluster.state.pod_gone(pod),
        lambda: cluster.reserve(a_pod("r", mem=10)),
        lambda: cluster.state.node_changed(a_node(devices=2, memory=9000)),
    ):
        before = table.inventory("n1")
        change()
        assert table.inventory("n1") is not before
    assert table.inventory("n9") == ()


MIG_TEXT = (
    '[{"containerIndex":0,"deviceIndex":0,"gpuUUID":"n1-d0","profile":"1g.5gb",'
    '"placement":{"start":6,"size":1},"migUUID":"MIG-1","gpuInstanceID":0,"computeInstanceID":0}]'
)


@pytest.mark.parametrize(
    ("text", "mode", "expected"),
    [
        pytest.param(MIG_TEXT, "mig", 1, id="an instance that was made, id 0 included"),
        pytest.param(MIG_TEXT.replace(',"migUUID":"MIG-1"', ""), "mig", 0, id="not made yet"),
        pytest.param(MIG_TEXT, "hami-core", 0, id="a device in another mode"),
        pytest.param(MIG_TEXT.replace("n1-d0", "n1-d9"), "mig", 0, id="a device it does not hold"),
        pytest.param("[{]", "mig", 0, id="an annotation that cannot be read"),
        pytest.param("", "mig", 0, id="an empty annotation"),
    ],
)
def test_mig_instances(text, mode, expected):
    pod = Pod(
        metadata=Metadata(name="p", uid="u", annotations={"hami.io/vgpu-mig-allocations": text})
    )
    held = Grant(device_id="n1-d0", vendor="ACME", memory_mib=5)
    containers = (ContainerAllocation(name="c", kind=ContainerKind.APP, grants=(held,)),)
    snapshot = a_snapshot(
        (a_device("n1-d0", mode=mode, index=3), Usage()),
        promised=[(pod, PodAllocation(node="n1", containers=containers))],
    )
    lines = read(HamiText(legacy=True).render(snapshot))
    found = shown(lines, "hami_node_gpu_mig_instance_info")
    former = shown(lines, "nodeGPUMigInstance")
    assert (len(found), len(former)) == (expected, expected)
    if expected:
        labels = {"node": "n1", "device_uuid": "n1-d0", "device_index": "3", "mig_uuid": "MIG-1",
                  "profile": "1g.5gb", "gpu_instance_id": "0", "compute_instance_id": "0",
                  "placement_start": "6", "placement_size": "1"}  # fmt: skip
        assert found == {tuple(sorted(labels.items())): 1}
        assert dict(next(iter(former)))["migname"] == "1g.5gb-0"


# A scrape while the cluster changes.


async def test_a_scrape_may_run_while_everything_changes():
    cluster = Cluster(*(a_node(f"n{i}", devices=2) for i in range(60)))
    stop = False

    async def change():
        number = 0
        while not stop:
            number += 1
            node = f"n{number % 60}"
            pod = granted(a_pod(f"p{number}", mem=10), node, f"{node}-d0:10")
            cluster.sees(pod)
            cluster.state.quota_changed(a_quota(f"q{number % 7}", mem=str(number)))
            if number % 3 == 0:
                cluster.state.node_gone(a_node(node))
                cluster.state.node_changed(a_node(node, devices=1 + number % 3))
                cluster.state.quota_gone(a_quota(f"q{number % 5}"))
            await asyncio.sleep(0)

    changing = asyncio.create_task(change())
    scrape = Scrape(cluster.state, Metrics(), leading=lambda: True, legacy=True)
    for _ in range(5):
        one, two = await asyncio.gather(text(scrape), text(scrape))
        read(one)
        read(two)
    stop = True
    await changing


async def test_the_loop_is_never_kept_for_a_whole_scrape():
    """A filter may have to wait for a piece of text, never for all of it."""
    cluster = Cluster(*(a_node(f"n{i:03}", devices=8) for i in range(400)))
    scrape = Scrape(cluster.state, Metrics(), leading=lambda: True)
    turns = 0

    async def count():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    pieces = [piece async for piece in scrape.pieces()]
    counting.cancel()
    assert max(map(len, pieces)) < sum(map(len, pieces)) / 10
    assert turns >= len(pieces)


async def test_a_snapshot_does_not_change_with_the_state():
    cluster = a_cluster()
    before = await take_snapshot(cluster.state)
    text = HamiText().render(before)
    cluster.sees(granted(a_pod("q", mem=1000), "n1", "n1-d0:1000"))
    cluster.state.node_gone(a_node())
    assert HamiText().render(before) == text


# Our own.


@dataclass(frozen=True)
class Call:
    verb: str = "bind"
    resource: str = "pods"
    status: int = 201
    seconds: float = 0.004


def own(metrics: Metrics, name: str) -> dict[tuple[str, ...], float]:
    """Values of one series by its labels' values, sorted by the labels' names."""
    return {
        tuple(value for _, value in sorted(line.labels)): line.value
        for line in read(metrics.render())
        if line.name == name
    }


@pytest.mark.parametrize(
    ("happens", "name", "expected"),
    [
        (lambda m: m.filtered(0.001, "placed", {}), "hami_scheduler_filter_duration_seconds_count", {("placed",): 1}),
        (lambda m: m.filtered(0.25, "refused", {}), "hami_scheduler_filter_duration_seconds_sum", {("refused",): 0.25}),
        (
            lambda m: m.filtered(0.1, "refused", {"CardNotHealth": 3, "UnknownUsage": 1}),
            "hami_scheduler_node_refusals_total", {("CardNotHealth",): 3, ("UnknownUsage",): 1},
        ),
        (lambda m: m.preemption_judged(0.1, "kept", {}), "hami_scheduler_preempt_duration_seconds_count", {("kept",): 1}),
        (
            lambda m: m.preemption_judged(0.1, "vetoed", {"CardInsufficientMemory": 2}),
            "hami_scheduler_preempt_vetoes_total", {("CardInsufficientMemory",): 2},
        ),
        (lambda m: m.bound(0.1, "unknown"), "hami_scheduler_bind_duration_seconds_count", {("unknown",): 1}),
        (lambda m: m.reviewed(0.1, "patched"), "hami_scheduler_webhook_duration_seconds_count", {("patched",): 1}),
        (lambda m: m.fitted("ACME", 0.1), "hami_scheduler_fit_duration_seconds_count", {("ACME",): 1}),
        (lambda m: m.woken(4), "hami_scheduler_pods_woken_total", {(): 4}),
        (lambda m: m.api_called(Call()), "hami_scheduler_api_calls_total", {("201", "pods", "bind"): 1}),
        (lambda m: m.api_called(Call(status=0)), "hami_scheduler_api_calls_total", {("0", "pods", "bind"): 1}),
        (lambda m: m.api_called(Call()), "hami_scheduler_api_call_duration_seconds_sum", {("pods", "bind"): 0.004}),
        (lambda m: m.bind_seen(0.5), "hami_scheduler_watch_lag_seconds_sum", {(): 0.5}),
        (lambda m: m.relisted("pods"), "hami_scheduler_relists_total", {("pods",): 1}),
        (lambda m: m.quota_refused("team", "pool"), "hami_scheduler_quota_refusals_total", {("team",): 1}),
        (lambda m: m.quota_refused("team", "pool"), "hami_quota_refusals_total", {("pool",): 1}),
        (lambda m: m.problems_told("OverAllocated"), "hami_scheduler_problems_total", {("OverAllocated",): 1}),
        (lambda m: m.preempted("fair"), "hami_scheduler_quota_preemptions_total", {("fair",): 1}),
        (lambda m: m.event_dropped(), "hami_scheduler_events_dropped_total", {(): 1}),
    ],
)  # fmt: skip
def test_what_happens_is_counted(happens, name, expected):
    metrics = Metrics()
    happens(metrics)
    assert own(metrics, name) == expected


@pytest.mark.parametrize(
    "happens",
    [
        pytest.param(lambda m: m.filtered(0.1, "refused", {"UnknownUsage": 1}), id="filter"),
        pytest.param(lambda m: m.quota_refused("team", "pool"), id="quota"),
        pytest.param(lambda m: m.bound(0.1, "bound"), id="bind"),
        pytest.param(lambda m: m.fitted("ACME", 0.1), id="fit"),
        pytest.param(lambda m: m.api_called(Call()), id="call"),
    ],
)
def test_what_each_pod_counts_is_looked_up_once(monkeypatch, happens):
    """The library takes longer to find a series than to count in it."""
    metrics, asked = Metrics(), []
    happens(metrics)
    monkeypatch.setattr(MetricWrapperBase, "labels", lambda *_: asked.append(1))
    happens(metrics)
    assert not asked


def test_short_times_are_told_apart():
    metrics = Metrics()
    for seconds in (0.00009, 0.0004, 0.0006, 0.004):
        metrics.filtered(seconds, "placed", {})
    counts = own(metrics, "hami_scheduler_filter_duration_seconds_bucket")
    at = {le: count for (le, _), count in counts.items()}
    assert (at["0.0001"], at["0.0005"], at["0.001"], at["0.005"], at["+Inf"]) == (1, 2, 3, 4, 4)


def test_levels_are_those_of_the_last_scrape():
    metrics = Metrics()
    empty = Levels(
        leading=False, nodes=0, pods_charged=0, pods_waiting=0, reservations={"binding": 0}
    )
    metrics.set_levels(replace(empty, leading=True, nodes=5, reservations={"binding": 2}))
    assert own(metrics, "hami_scheduler_leading") == {(): 1}
    assert own(metrics, "hami_scheduler_reservations")[("binding",)] == 2
    metrics.set_levels(empty)
    assert own(metrics, "hami_scheduler_leading") == {(): 0}
    assert own(metrics, "hami_scheduler_reservations")[("binding",)] == 0


async def test_a_scrape_counts_what_is_reserved_and_what_waits():
    cluster = a_cluster()
    for name in ("a", "b"):
        cluster.reserve(a_pod(name))
    cluster.state.reservations["uid-default-b"].phase = Phase.BINDING
    cluster.sees(a_pod("w"))
    found = {
        (line.name, *(value for _, value in line.labels)): line.value
        for line in await scraped(cluster)
    }
    assert found["hami_scheduler_reservations", "reserved"] == 1
    assert found["hami_scheduler_reservations", "binding"] == 1
    assert found["hami_scheduler_reservations", "bound"] == 0
    assert found["hami_scheduler_pods_waiting",] == 1
    assert found["hami_scheduler_pods_charged",] == 1
    assert found["hami_scheduler_nodes",] == 1
    assert found["hami_scheduler_leading",] == 1


def test_no_series_says_when_it_was_created():
    metrics = Metrics()
    metrics.filtered(0.1, "placed", {})
    assert b"_created" not in metrics.render()


# docs/metrics.md.

DOCUMENT = Path(__file__).parents[3] / "docs" / "metrics.md"


def families(text: bytes) -> dict[str, str]:
    """Type by name."""
    lines = [line.split() for line in text.decode().splitlines() if line.startswith("# TYPE")]
    return {name: kind for _, _, name, kind in lines}


async def test_the_document_names_every_metric_and_no_other():
    scrape = Scrape(Cluster().state, Metrics(), leading=lambda: True, legacy=True)
    exported = families(await text(scrape))
    document = DOCUMENT.read_text()
    documented = set(re.findall(r"^\| `(hami_\w+)`", document, re.MULTILINE))
    former = {name for name in exported if not name.startswith("hami_")}
    assert documented == exported.keys() - former
    assert all(f"`{name}`" in document for name in former)
    assert former == {name for name, _, _ in LEGACY} | {"nodeGPUMigInstance"}


def test_the_documented_labels_are_those_of_our_own_metrics():
    metrics = Metrics()
    metrics.filtered(0.1, "refused", {"CardNotHealth": 1})
    metrics.preemption_judged(0.1, "kept", {"CardNotHealth": 1})
    metrics.bound(0.1, "bound")
    metrics.reviewed(0.1, "denied")
    metrics.fitted("ACME", 0.1)
    metrics.quota_refused("team", "pool")
    metrics.preempted("fair")
    metrics.preemption_backed_off("ElasticQuota team/quota")
    metrics.resized("resized")
    metrics.problems_told("UnknownUsage")
    metrics.api_called(Call())
    metrics.bind_seen(0.1)
    metrics.relisted("pods")
    metrics.set_levels(
        Levels(leading=True, nodes=1, pods_charged=1, pods_waiting=1, reservations={"reserved": 1})
    )
    shown: dict[str, set[str]] = {}
    for line in read(metrics.render()):
        name = re.sub("_(bucket|sum|count)$", "", line.name)
        shown.setdefault(name, set()).update(label for label, _ in line.labels if label != "le")
    rows = re.findall(
        r"^\| `(hami_(?:scheduler_\w+|quota_refusals_total))` \| ([^|]*)\|",
        DOCUMENT.read_text(),
        re.MULTILINE,
    )
    assert {name: set(re.findall(r"`(\w+)`", labels)) for name, labels in rows} == shown
