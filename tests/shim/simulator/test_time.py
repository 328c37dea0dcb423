"""The simulated cards' clock: computed exactly, shared in slices, never waiting for nothing."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from ..simulated import SimulatedGpus
from .clients import NOT_READY, UNAVAILABLE, Refused
from .conftest import clients_in

US, MS = 1_000, 1_000_000


def test_a_queue_takes_exactly_the_time_of_its_work(gpus_with, clients_of):
    with gpus_with() as gpus, clients_of(gpus) as client:
        one = client()
        one.ask("queue", 0, 0)
        one.ask("hold", 0)
        one.ask("mark", 0, 0)
        one.ask("run", 0, 10 * US, 1000, 500)
        one.ask("mark", 1, 0)
        assert one.ask("idle", 0) == 0
        with pytest.raises(Refused) as refused:
            one.ask("query", 1)
        assert refused.value.code == NOT_READY
        one.ask("release", 0)
        assert one.ask("when", 1) - one.ask("when", 0) == 5 * MS
        assert one.ask("idle", 0) == 1


@pytest.mark.parametrize(
    ("width", "together"), [(500, 10 * MS), (501, 20 * MS), (1000, 20 * MS), (1, 10 * MS)]
)
def test_queues_run_side_by_side_as_far_as_they_fit(gpus_with, clients_of, width, together):
    with gpus_with() as gpus, clients_of(gpus) as client:
        one = client()
        for queue in (0, 1):
            one.ask("queue", queue, 0)
        one.ask("hold", 0)
        one.ask("mark", 0, 0)
        one.ask("wait", 0, 1)
        one.ask("run", 0, 10 * MS, width)
        one.ask("run", 1, 10 * MS, width)
        one.ask("mark", 1, 0)
        one.ask("mark", 2, 1)
        one.ask("release", 0)
        start = one.ask("when", 0)
        assert max(one.ask("when", 1), one.ask("when", 2)) - start == together
        busy = gpus.busy_of("a")
        assert (busy.wall_ns, busy.sm_ns) == (together, 2 * 10 * MS * width // 1000)


def test_a_queue_waits_for_another_devices_queue(gpus_with, clients_of):
    with gpus_with("gpu\ngpu\n") as gpus, clients_of(gpus) as client:
        one = client()
        one.ask("queue", 0, 0)
        one.ask("queue", 1, 1)
        one.ask("hold", 0)
        one.ask("mark", 0, 0)
        one.ask("run", 0, 7 * MS, 1000)
        one.ask("mark", 1, 0)
        one.ask("wait", 1, 1)
        one.ask("run", 1, 3 * MS, 1000)
        one.ask("mark", 2, 1)
        one.ask("wait", 2, 0)
        one.ask("mark", 3, 0)
        one.ask("release", 0)
        start = one.ask("when", 0)
        assert [one.ask("when", marker) - start for marker in (1, 2, 3)] == [
            7 * MS,
            10 * MS,
            10 * MS,
        ]


def test_a_marker_used_anew_means_its_last_use(gpus_with, clients_of):
    with gpus_with() as gpus, clients_of(gpus) as client:
        one = client()
        for queue in (0, 1):
            one.ask("queue", queue, 0)
        one.ask("run", 0, 60 * MS, 100)
        one.ask("mark", 0, 0)
        one.ask("mark", 0, 1)
        early = one.ask("when", 0)
        one.ask("finish", 0)
        assert one.ask("when", 0) == early
        one.ask("drop", 0)
        assert one.ask("query", 1) == 0  # never recorded


def test_a_thousand_pieces_of_work_may_be_outstanding(gpus_with, clients_of):
    with gpus_with() as gpus, clients_of(gpus) as client:
        one = client()
        one.ask("queue", 0, 0)
        one.ask("mark", 0, 0)
        one.ask("run", 0, 700 * MS, 1000)
        one.ask("mark", 1, 0)
        one.ask("when", 0)
        # With the long one and the mark behind it there is room for so many without waiting.
        one.ask("run", 0, 10 * US, 1000, 1022)
        with pytest.raises(Refused) as refused:
            one.ask("query", 1)
        assert refused.value.code == NOT_READY
        assert gpus.clients()[0]["outstanding"] == 1024
        one.ask("run", 0, 10 * US, 1000)
        assert one.ask("query", 1) - one.ask("when", 0) >= 700 * MS
        assert gpus.clients()[0]["outstanding"] <= 1024


def test_two_processes_get_half_each_and_one_gets_all(gpus_with, clients_of):
    """Both have so much queued that it lasts while they get no processor of this machine."""
    with gpus_with() as gpus, clients_of(gpus) as client:
        one, other = client("a"), client("b")
        for process in (one, other):
            process.ask("queue", 0, 0)
        one.tell("flood", 0, 1 * MS, 1000, 1500)
        other.tell("flood", 0, 200 * US, 1000, 1500)
        time.sleep(0.2)
        before, started = wall_times(gpus)
        time.sleep(0.6)
        after, ended = wall_times(gpus)
        shares = [(after[name] - before[name]) / (ended - started) for name in ("a", "b")]
        assert shares == pytest.approx([0.5, 0.5], abs=0.02)
        one.answer()
        other.answer()
        one.kill()
        other.ask("finish", 0)
        other.tell("flood", 0, 200 * US, 1000, 600)
        time.sleep(0.1)
        before, started = wall_times(gpus)
        time.sleep(0.2)
        after, ended = wall_times(gpus)
        assert (after["b"] - before["b"]) / (ended - started) == pytest.approx(1, abs=0.03)
        other.answer()


def wall_times(gpus: SimulatedGpus) -> tuple[dict[str, int], int]:
    """By tenant, on the one card; and the daemon's time at which it counted them."""
    found = json.loads(gpus.command("busy"))
    return {row["tenant"]: row["wall_ns"] for row in found["tenants"]}, found["now_ns"]


def test_a_short_kernel_gets_its_slices_beside_a_long_one(gpus_with, clients_of):
    """The long one's events see both: elapsed time overcharges while tenants overlap."""
    with gpus_with() as gpus, clients_of(gpus) as client:
        one, other = client("a"), client("b")
        for process in (one, other):
            process.ask("queue", 0, 0)
        for process, duration in ((one, 200 * MS), (other, 9 * MS)):
            process.ask("hold", 0)
            process.ask("mark", 0, 0)
            process.ask("run", 0, duration, 1000)
            process.ask("mark", 1, 0)
        one.ask("release", 0)
        time.sleep(0.03)
        other.ask("release", 0)
        short = other.ask("when", 1) - other.ask("when", 0)
        long = one.ask("when", 1) - one.ask("when", 0)
        # Four slices of 2 ms and one of 1 ms, with one of the other's between each.
        assert short == 17 * MS
        assert long == 209 * MS
        assert (gpus.busy_of("a").wall_ns, gpus.busy_of("b").wall_ns) == (200 * MS, 9 * MS)


def test_waiting_costs_little_more_than_the_work(gpus_with, clients_of):
    with gpus_with() as gpus, clients_of(gpus) as client:
        one = client()
        one.ask("queue", 0, 0)
        took = min(one.ask("loop", 0, 1 * MS, 1000, 20) for _ in range(3))
        assert 20 * MS <= took < 26 * MS


def test_utilisation_is_sampled_late_and_whole(gpus_with, clients_of):
    with gpus_with() as gpus, clients_of(gpus) as client:
        gpus.command("set", "sample_ms", 50)
        one, idle = client("a"), client("idle")
        one.ask("queue", 0, 0)
        idle.ask("queue", 0, 0)
        start = time.monotonic_ns()
        one.ask("run", 0, 360 * MS, 100)
        while not gpus.board()["units"][0]["utilisation"]:
            time.sleep(0.001)
        # What runs is seen when the sample after the one that saw it is taken.
        assert time.monotonic_ns() - start > 50 * MS
        time.sleep(0.1)
        shown = gpus.board()
        assert shown["units"][0]["utilisation"] == 100
        assert {row["tenant"]: row["utilisation"] for row in shown["rows"]} == {"a": 100, "idle": 0}
        one.ask("finish", 0)
        gpus.eventually(lambda: gpus.board()["units"][0]["utilisation"] == 0)
        assert gpus.busy_of("a").wall_ns == 360 * MS
        assert gpus.busy_of("a").sm_ns == 36 * MS


def test_threads_of_a_process_share_its_ring(threaded, tmp_path):
    with SimulatedGpus(tmp_path, build=threaded) as gpus, clients_in(gpus, threaded) as client:
        one = client()
        one.ask("threads", 8, 60)
        assert gpus.busy_of("a").sm_ns == 8 * 60 * 20 * US * 3 // 10
        assert gpus.used() == 0


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def test_a_hundred_thousand_kernels_a_second_cost_half_a_core(plain_gpus, plain_client):
    """By CPU time for each kernel, so that a busy machine, where fewer are run, proves it too."""
    one = plain_client()
    one.ask("queue", 0, 0)
    before = cpu_seconds(plain_gpus.pid)
    run = one.ask("flood", 0, 10 * US, 1000, 1000)
    one.ask("finish", 0)
    assert run > 20_000
    assert cpu_seconds(plain_gpus.pid) - before < 0.5 * run / 100_000
    assert plain_gpus.busy_of("a").wall_ns == run * 10 * US


def test_a_launch_of_nothing_costs_next_to_nothing(plain_client):
    one = plain_client(LEDGER="local")
    one.ask("queue", 0, 0)
    assert one.ask("bench", 0) < 20_000  # picoseconds, on whatever machine this is


def test_destroyed_queues_finish_and_give_their_place_back(gpus_with, clients_of):
    with gpus_with("gpu\ngpu\n") as gpus, clients_of(gpus) as client:
        one = client()
        for turn in range(5000):
            one.ask("queue", 0, turn % 2)
            if turn % 500 == 0:
                one.ask("run", 0, 1 * MS, 1000)
            one.ask("destroy", 0)
        one.ask("queue", 1, 0)
        one.ask("queue", 2, 1)
        gpus.eventually(lambda: sum(gpus.busy_of("a", unit).wall_ns for unit in (0, 1)) == 10 * MS)


def test_who_waits_for_a_driver_that_is_gone_learns_it(gpus_with, clients_of):
    with gpus_with() as gpus, clients_of(gpus) as client:
        one = client()
        one.ask("queue", 0, 0)
        one.ask("mark", 0, 0)
        one.ask("run", 0, 10_000 * MS, 1000)
        one.tell("finish", 0)
        time.sleep(0.05)
        gpus.kill()
        assert one.code() == UNAVAILABLE
        for words in [("take", 0, 1, 0), ("run", 0, 1 * MS, 1), ("queue", 1, 0)]:
            one.tell(*words)
            assert one.code() == UNAVAILABLE
