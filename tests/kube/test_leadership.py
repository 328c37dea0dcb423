"""Who leads and when: clocks of our own, an API server in memory."""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest

from hami.domain.kubernetes.objects import Metadata
from hami.kube.errors import ApiError
from hami.kube.leases.leadership import FIELD_TIMES, AlwaysLeads, ObservedLease
from hami.kube.leases.own_lease import LeaseTimes, OwnLease
from hami.kube.resources import LEASES, Lease, LeaseSpec

from .fake_api import running, until

TIMES = LeaseTimes(duration=15, renew_deadline=10, retry=2, margin=5)


class Clock:
    """One true time; every process has its own zero, and its own idea of the date."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self, zero: float = 0.0):
        return lambda: self.now - zero

    def date(self, skew: float = 0.0):
        return lambda: datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.now + skew)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def problems():
    return []


def test_a_single_process_always_leads():
    assert AlwaysLeads().leading


# Our own Lease.


def a_candidate(client, clock, problems, name, *, zero=0.0, skew=0.0, times=TIMES):
    return OwnLease(
        client, "ns", "hami", name, times=times, on_problem=problems.append,
        clock=clock.monotonic(zero), now=clock.date(skew),
    )  # fmt: skip


@pytest.fixture
def candidates(client, clock, problems):
    return tuple(a_candidate(client, clock, problems, name) for name in "ab")


def written(api):
    return api.objects["leases"]["ns", "hami"]["spec"]


async def test_the_first_one_leads_at_once(api, candidates):
    a, b = candidates
    await a.attempt()
    await b.attempt()
    assert (a.leading, b.leading, b.holder, a.term) == (True, False, "a", 0)
    assert written(api)["holderIdentity"] == "a"
    assert written(api)["leaseDurationSeconds"] == 15


async def test_leading_ends_by_time_alone_a_margin_before_the_lease(candidates, clock):
    a, _ = candidates
    await a.attempt()
    clock.now += 9.9
    assert a.leading
    clock.now += 0.2
    assert not a.leading


async def test_renewals_keep_it(api, candidates, clock):
    a, b = candidates
    for _ in range(20):
        await a.attempt()
        await b.attempt()
        assert (a.leading, b.leading) == (True, False)
        clock.now += 9
    assert written(api)["leaseTransitions"] == 0


async def test_another_waits_for_expiry_and_the_margin(candidates, clock):
    a, b = candidates
    await a.attempt()
    await b.attempt()
    clock.now += 14.9
    await b.attempt()
    assert b.holder == "a"
    clock.now += 0.2
    await b.attempt()
    assert (b.holder, b.leading, b.term) == ("b", False, 1)
    clock.now += 4.8
    assert not b.leading
    clock.now += 0.2
    assert b.leading


async def test_a_lease_found_is_watched_for_a_whole_duration_before_it_is_taken(
    api, client, clock, problems
):
    api.put("leases", "hami", "ns", spec={
        "holderIdentity": "x", "leaseDurationSeconds": 15, "renewTime": "2001-01-01T00:00:00.000000Z",
    })  # fmt: skip
    b = a_candidate(client, clock, problems, "b")
    await b.attempt()
    assert b.holder == "x"
    clock.now += 15.1
    await b.attempt()
    assert b.holder == "b"


async def test_a_released_lease_is_taken_at_once_and_leads_at_once(api, candidates):
    a, b = candidates
    await a.attempt()
    await b.attempt()
    await a.release()
    assert (a.leading, written(api)["holderIdentity"]) == (False, "")
    await b.attempt()
    assert (b.leading, b.term) == (True, 1)


async def test_a_process_that_starts_again_under_its_name_waits_and_has_a_new_term(
    client, clock, problems, candidates
):
    a, _ = candidates
    await a.attempt()
    again = a_candidate(client, clock, problems, "a")
    await again.attempt()
    assert (again.leading, again.term) == (False, 1)
    clock.now += 5.1
    assert again.leading


async def test_a_renewal_whose_answer_was_lost_goes_on(api, candidates, clock):
    a, _ = candidates
    await a.attempt()
    clock.now += 2
    api.refuse("leases", 500, method="PATCH", after=True)
    with pytest.raises(ApiError):
        await a.attempt()
    clock.now += 2
    await a.attempt()
    assert (a.leading, a.term) == (True, 0)
    clock.now += 9.9
    assert a.leading


async def test_a_take_over_whose_answer_was_lost_waits_again(api, candidates, clock):
    a, b = candidates
    await a.attempt()
    await b.attempt()
    clock.now += 30
    api.refuse("leases", 500, method="PATCH", after=True)
    with pytest.raises(ApiError):
        await b.attempt()
    await b.attempt()
    assert (b.leading, b.term) == (False, 2)
    clock.now += 5.1
    assert b.leading


async def test_renewing_late_goes_on_in_the_same_term_while_nobody_else_came(candidates, clock):
    a, _ = candidates
    await a.attempt()
    clock.now += 100
    assert not a.leading
    await a.attempt()
    assert (a.leading, a.term) == (True, 0)


async def test_a_renewal_counts_from_when_it_was_sent(client, candidates, clock, monkeypatch):
    a, _ = candidates
    await a.attempt()
    patch = client.patch

    async def slow(*arguments, **options):
        written = await patch(*arguments, **options)
        clock.now += 3
        return written

    monkeypatch.setattr(client, "patch", slow)
    await a.attempt()
    clock.now += 6.9
    assert a.leading
    clock.now += 0.2
    assert not a.leading


async def test_a_lease_lost_to_another_is_not_led_any_more(api, candidates, clock):
    a, _ = candidates
    await a.attempt()
    api.put("leases", "hami", "ns", spec={
        "holderIdentity": "x", "leaseDurationSeconds": 15, "leaseTransitions": 7,
    })  # fmt: skip
    await a.attempt()
    assert (a.leading, a.holder) == (False, "x")


async def test_a_deleted_lease_is_made_again(api, candidates):
    a, _ = candidates
    await a.attempt()
    api.remove("leases", "hami", "ns")
    await a.attempt()
    assert (a.leading, written(api)["holderIdentity"]) == (True, "a")


async def test_a_lease_deleted_under_another_leader_is_waited_out(api, candidates, clock):
    a, b = candidates
    await a.attempt()
    await b.attempt()
    api.remove("leases", "hami", "ns")
    await b.attempt()
    assert not b.leading
    await a.attempt()
    assert (a.leading, a.holder) == (False, "b")
    clock.now += 19
    await b.attempt()
    assert not b.leading
    clock.now += 1.1
    assert b.leading


@pytest.mark.parametrize("seed", range(8))
async def test_no_leader_begins_before_what_the_last_one_started_is_over(
    api, client, problems, seed
):
    """Whatever the clocks say, with calls that fail or whose answers are lost, and long pauses."""
    rng, clock = random.Random(seed), Clock()
    zeros = {name: rng.uniform(-1e6, 1e6) for name in "abc"}
    group = {
        name: a_candidate(client, clock, problems, name, zero=zero, skew=rng.uniform(-1e6, 1e6))
        for name, zero in zeros.items()
    }
    paused = dict.fromkeys(group, 0.0)
    over = dict.fromkeys(group, 0.0)
    terms = set()
    for _ in range(700):
        clock.now += rng.choice([0.1, 0.5, 1, 2])
        name = rng.choice([n for n in group if paused[n] <= clock.now] or list(group))
        candidate = group[name]
        if rng.random() < 0.05:
            paused[name] = clock.now + rng.uniform(5, 40)
        if rng.random() < 0.1:
            api.refuse("leases", 500, method="PATCH", after=rng.random() < 0.5)
        if rng.random() < 0.02:
            await candidate.release()
            over[name] = min(over[name], clock.now)
        with suppress(ApiError):
            await candidate.attempt()
        for leader in (n for n, c in group.items() if c.leading):
            begun = group[leader].leading_since + zeros[leader]
            assert all(end <= begun + 1e-6 for n, end in over.items() if n != leader), (
                leader,
                over,
            )
            over[leader] = group[leader].leading_until + zeros[leader] + TIMES.margin
            terms.add((leader, group[leader].term))
    assert len(terms) >= 5
    assert len({term for _, term in terms}) == len(terms)


async def test_run_acquires_renews_and_releases(api, client):
    times = LeaseTimes(duration=30, renew_deadline=20, retry=0.01, margin=5)
    problems = []
    a = OwnLease(client, "ns", "hami", "a", times=times, on_problem=problems.append)
    async with running(a.run()):
        await until(lambda: a.leading)
        first = written(api)["renewTime"]
        await until(lambda: written(api)["renewTime"] != first)
        api.refuse("leases", 503, method="PATCH")
        await until(lambda: problems)
    assert not a.leading
    assert written(api)["holderIdentity"] == "a", "a bind may yet be under way"
    await a.release()
    assert (written(api)["holderIdentity"], written(api)["leaseDurationSeconds"]) == ("", 1)
    assert problems == ["lease ns/hami: patch leases ns/hami: 503 Service Unavailable: no"]


async def test_an_answer_that_does_not_come_is_given_up_in_time(api, client):
    times = LeaseTimes(duration=0.3, renew_deadline=0.2, retry=0.01, margin=0.1)
    problems = []
    a = OwnLease(client, "ns", "hami", "a", times=times, on_problem=problems.append)
    api.hang("leases")
    async with running(a.run()):
        await until(lambda: a.leading)
    assert problems[0] == "lease ns/hami: no answer within 0.1 s"


async def test_a_renewal_cut_off_by_the_end_is_released_too(api, client):
    times = LeaseTimes(duration=30, renew_deadline=20, retry=0.01, margin=5)
    a = OwnLease(client, "ns", "hami", "a", times=times, on_problem=lambda _: None)
    async with running(a.run()):
        await until(lambda: a.leading)
        api.hang("leases", method="PATCH")
        await until(lambda: not api.faults)
    await a.release()
    assert written(api)["holderIdentity"] == ""


# kube-scheduler's Lease.


def an_observer(client, clock, problems, hostname="host-1", margin=5.0):
    return ObservedLease(
        client, "kube-system", "kube-scheduler", hostname, margin=margin,
        on_problem=problems.append, clock=clock.monotonic(), now=clock.date(),
    )  # fmt: skip


@pytest.fixture
def observer(client, clock, problems):
    return an_observer(client, clock, problems)


def a_lease(clock, holder, *, acquired=0.0, renewed=0.0, transitions=0, duration=15):
    """``acquired`` and ``renewed``: seconds ago."""

    def at(ago):
        return (clock.date()() - timedelta(seconds=ago)).strftime(FIELD_TIMES)

    return Lease(
        metadata=Metadata(name="kube-scheduler", namespace="kube-system"),
        spec=LeaseSpec(
            holder_identity=holder, lease_duration_seconds=duration, acquire_time=at(acquired),
            renew_time=at(renewed), lease_transitions=transitions,
        ),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("holder", "leads"),
    [
        ("host-1_0b9c7a9e-1111-4222-8333-444455556666", True),
        ("host-10_0b9c7a9e-1111-4222-8333-444455556666", False),
        ("host_0b9c7a9e-1111-4222-8333-444455556666", False),
        ("host-1", False),
        ("other_host-1_x", False),
        ("", False),
        (None, False),
    ],
)
def test_we_lead_when_the_scheduler_of_this_very_host_does(observer, clock, holder, leads):
    clock.now += 1
    observer.changed(a_lease(clock, holder), None)
    assert observer.leading is leads


@pytest.mark.parametrize(
    ("duration", "margin", "ends"),
    [
        pytest.param(15, 5.0, 6, id="two periods of renewal after the last one"),
        pytest.param(137, 5.0, 54.8, id="two of longer ones"),
        pytest.param(15, 12.0, 3, id="a margin before the lease runs out"),
    ],
)
def test_it_ends_soon_after_the_last_renewal_that_was_heard_of(
    client, clock, problems, duration, margin, ends
):
    observer = an_observer(client, clock, problems, margin=margin)
    clock.now += 1
    observer.changed(a_lease(clock, "host-1_x", duration=duration), None)
    clock.now += ends - 0.1
    assert observer.leading
    clock.now += 0.2
    assert not observer.leading
    observer.changed(a_lease(clock, "host-1_x", acquired=ends + 0.1, duration=duration), None)
    assert observer.leading


def test_a_lease_too_short_to_bind_in_is_complained_of_once(client, clock, problems):
    observer = an_observer(client, clock, problems, margin=5.0)
    for _ in range(3):
        clock.now += 1
        observer.changed(a_lease(clock, "host-1_x", duration=5), None)
        assert not observer.leading
    (problem,) = problems
    assert "bind-timeout is 5 s" in problem
    assert "leaderElection.leaseDuration" in problem


def test_a_renewal_seen_late_counts_from_when_it_was_made(observer, clock):
    clock.now += 20
    observer.changed(a_lease(clock, "host-1_x", acquired=19, renewed=5), None)
    assert observer.leading
    clock.now += 1.1
    assert not observer.leading


def test_a_lease_that_ran_out_long_ago_is_not_led(observer, clock):
    clock.now += 100
    observer.changed(a_lease(clock, "host-1_x", acquired=90, renewed=60), None)
    assert not observer.leading


def test_after_another_host_led_we_wait_for_the_margin(observer, clock):
    clock.now += 100
    observer.changed(a_lease(clock, "host-2_y", acquired=50), None)
    clock.now += 15
    observer.changed(a_lease(clock, "host-1_x", transitions=1), None)
    assert (observer.leading, observer.term) == (False, 1)
    clock.now += 5
    observer.changed(a_lease(clock, "host-1_x", acquired=5, transitions=1), None)
    assert observer.leading
    observer.changed(a_lease(clock, "host-2_z", transitions=2), None)
    assert (observer.leading, observer.holder) == (False, "host-2_z")


@pytest.mark.parametrize("released", [False, True])
def test_a_new_scheduler_on_this_host_is_not_waited_for(observer, clock, released):
    clock.now += 100
    observer.changed(a_lease(clock, "host-1_x"), None)
    if released:
        observer.changed(a_lease(clock, "", duration=1), None)
        assert not observer.leading
    observer.changed(a_lease(clock, "host-1_y", transitions=1), None)
    assert (observer.leading, observer.term) == (True, 1)


@pytest.mark.parametrize("heard", [False, True], ids=["cut off", "hears of it"])
def test_after_a_release_nobody_begins_before_the_last_one_can_have_nothing_under_way(
    client, clock, problems, heard
):
    ours, theirs = (an_observer(client, clock, problems, f"host-{n}") for n in (1, 2))
    clock.now += 100
    held = a_lease(clock, "host-2_x", acquired=90, transitions=1)
    for observer in (ours, theirs):
        observer.changed(held, None)
    assert theirs.leading
    clock.now += 1
    released = a_lease(clock, "", duration=1, transitions=1)
    for observer in (ours, theirs) if heard else (ours,):
        observer.changed(released, held)
    over = 0.0
    acquired = clock.now + 1
    while not ours.leading:
        clock.now += 0.125
        assert clock.now < acquired + 15
        if theirs.leading:
            over = clock.now + 5  # A bind that is begun now may take the whole margin.
        if clock.now >= acquired:
            ours.changed(
                a_lease(clock, "host-1_x", acquired=clock.now - acquired, transitions=2), None
            )
    assert over <= clock.now
    assert not theirs.leading
    assert heard is (over == 0.0)


def test_a_predecessor_never_seen_may_have_renewed_until_the_lease_was_taken(observer, clock):
    clock.now += 100
    observer.changed(a_lease(clock, "host-1_x", acquired=1, transitions=3), None)
    clock.now += 9.9
    observer.changed(a_lease(clock, "host-1_x", acquired=10.9, transitions=3), None)
    assert not observer.leading
    clock.now += 0.2
    assert observer.leading


def test_a_holder_that_was_missed_between_two_of_ours_is_waited_for(observer, clock):
    clock.now += 100
    observer.changed(a_lease(clock, "host-1_x", transitions=1), None)
    clock.now += 50
    observer.changed(a_lease(clock, "host-1_x", transitions=3), None)
    assert not observer.leading
    clock.now += 10.9
    observer.changed(a_lease(clock, "host-1_x", acquired=10.9, transitions=3), None)
    assert not observer.leading
    clock.now += 0.2
    assert observer.leading


def test_renewals_that_fell_between_two_lists_are_taken_for_made(observer, clock):
    clock.now += 100
    observer.changed(a_lease(clock, "host-2_x", transitions=1), None)
    clock.now += 50
    observer._informer.relists += 1
    observer.changed(a_lease(clock, "host-1_x", transitions=2), None)
    clock.now += 10.9
    observer.changed(a_lease(clock, "host-1_x", acquired=10.9, transitions=2), None)
    assert not observer.leading
    clock.now += 0.2
    assert observer.leading


def test_by_default_the_clock_goes_on_while_the_machine_sleeps(client, problems, monkeypatch):
    now = {time.CLOCK_BOOTTIME: 1e6}
    monkeypatch.setattr(time, "clock_gettime", now.__getitem__)
    own = OwnLease(client, "ns", "hami", "a", on_problem=problems.append)
    observed = ObservedLease(
        client, "kube-system", "kube-scheduler", "host-1", margin=5.0, on_problem=problems.append
    )
    for lease in (own, observed):
        lease.leading_until = 1e6 + 10
        assert lease.leading
    now[time.CLOCK_BOOTTIME] += 3600
    assert not own.leading
    assert not observed.leading


def test_a_lease_held_since_before_we_started_is_led_after_the_margin(observer, clock):
    clock.now += 1
    observer.changed(a_lease(clock, "host-1_x", acquired=500), None)
    assert not observer.leading
    clock.now += 4.1
    assert observer.leading


def test_a_lease_that_is_gone_has_no_leader(observer, clock):
    clock.now += 1
    lease = a_lease(clock, "host-1_x")
    observer.changed(lease, None)
    observer.gone(lease)
    assert (observer.leading, observer.holder) == (False, "")


async def test_the_lease_is_followed_on_the_server_and_never_written(api, client, problems):
    clock = Clock()
    observer = an_observer(client, clock, problems, margin=0.0)
    clock.now += 1
    spec = {
        "holderIdentity": "host-1_x", "leaseDurationSeconds": 15, "leaseTransitions": 3,
        "acquireTime": "2001-01-01T00:00:00.000000Z",
    }  # fmt: skip
    api.put("leases", "kube-scheduler", "kube-system", spec=spec)
    api.put("leases", "other", "kube-system", spec={**spec, "holderIdentity": "host-9_x"})
    async with running(observer.run()):
        await until(lambda: observer.leading)
        assert (observer.term, observer.holder) == (3, "host-1_x")
        spec["holderIdentity"] = "host-2_x"
        api.put("leases", "kube-scheduler", "kube-system", spec=spec)
        await until(lambda: observer.holder == "host-2_x")
        assert not observer.leading
        api.remove("leases", "kube-scheduler", "kube-system")
        await until(lambda: not observer.holder)
    assert {a.method for a in api.asked} == {"GET"}


async def test_leading_ends_with_the_observation(api, client, problems):
    clock = Clock()
    observer = an_observer(client, clock, problems, margin=0.0)
    api.put("leases", "kube-scheduler", "kube-system", spec={
        "holderIdentity": "host-1_x", "leaseDurationSeconds": 15,
    })  # fmt: skip
    async with running(observer.run()):
        await until(lambda: observer.leading)
    assert not observer.leading


async def test_no_lease_of_the_server_is_asked_for_by_its_name_alone(api, client, problems):
    observer = an_observer(client, Clock(), problems)
    async with running(observer.run()):
        await until(lambda: api.open_watches)
        await asyncio.sleep(0)
    assert {a.path for a in api.asked} == {LEASES.path("kube-system")}
    assert {a.query["fieldSelector"] for a in api.asked} == {"metadata.name=kube-scheduler"}
