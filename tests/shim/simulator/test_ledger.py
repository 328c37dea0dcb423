"""The simulated cards' memory: whose it is, how long, and who may not break it."""

from __future__ import annotations

import random
import time

import pytest

from ..simulated import MIB
from .clients import CONTEXT, DATA, NOT_INITIALIZED, OUT_OF_MEMORY, POOL, Refused

ONE_CARD = "gpu memory=100\n"


def test_memory_comes_in_granules_of_2_mib(gpus_with, clients_of):
    with gpus_with(ONE_CARD) as gpus, clients_of(gpus) as client:
        one = client("a")
        one.ask("take", 0, 1, DATA)
        held = gpus.held("a")
        assert (held.data, held.bytes, held.peak) == (2 * MIB, 2 * MIB, 2 * MIB)
        assert one.ask("free", 0) == 98 * MIB


def test_a_full_card_refuses_and_forgets_the_attempt(gpus_with, clients_of):
    with gpus_with(ONE_CARD) as gpus, clients_of(gpus) as client:
        one, other = client("a"), client("b")
        one.ask("take", 0, 60 * MIB, DATA)
        for bytes_ in (42 * MIB, 40 * MIB + 1, 2**64 - 1, 101 * MIB):
            with pytest.raises(Refused) as refused:
                other.ask("take", 0, bytes_, DATA)
            assert refused.value.code == OUT_OF_MEMORY
        other.ask("take", 0, 40 * MIB, DATA)
        assert gpus.used() == 100 * MIB
        assert gpus.held("b").peak == 40 * MIB


def test_the_peak_counts_data_and_pools_together_and_nothing_else(gpus_with, clients_of):
    with gpus_with(ONE_CARD) as gpus, clients_of(gpus) as client:
        one = client("a")
        one.ask("take", 0, 10 * MIB, CONTEXT)
        data = one.ask("take", 0, 20 * MIB, DATA)
        one.ask("give", data)
        one.ask("take", 0, 6 * MIB, POOL)
        client("a").ask("take", 0, 8 * MIB, DATA)
        held = gpus.held("a")
        assert (held.data, held.pool, held.context, held.peak) == (
            8 * MIB, 6 * MIB, 10 * MIB, 20 * MIB)  # fmt: skip
        gpus.command("reset-peaks")
        assert gpus.held("a").peak == 14 * MIB


def test_memory_outlives_its_process_a_little(gpus_with, clients_of):
    with gpus_with(ONE_CARD) as gpus, clients_of(gpus) as client:
        gpus.command("set", "free_delay_ms", 60000)
        one = client("a")
        one.ask("take", 0, 50 * MIB, DATA)
        one.kill()
        gpus.eventually(lambda: [c["gone"] for c in gpus.clients()] == [True])
        assert gpus.used() == 50 * MIB
        gpus.command("set", "free_delay_ms", 5)
        other = client("a")
        other.ask("take", 0, 10 * MIB, DATA)
        other.kill()
        gpus.eventually(lambda: gpus.used() == 50 * MIB)


@pytest.mark.parametrize("noticed", [False, True], ids=["unnoticed", "noticed"])
def test_a_daemon_that_had_no_processor_frees_first_what_is_due(noticed, gpus_with, clients_of):
    """What is asked for long after a death finds the memory free, as with a driver in a kernel."""
    with gpus_with(ONE_CARD) as gpus, clients_of(gpus) as client:
        one, other = client("a"), client("a")
        one.ask("take", 0, 60 * MIB, DATA)
        other.ask("take", 0, 10 * MIB, DATA)
        if noticed:
            gpus.command("set", "free_delay_ms", 100)
            one.kill()
            gpus.eventually(lambda: [c["gone"] for c in gpus.clients()].count(True) == 1)
        with gpus.paused():
            one.kill()
            time.sleep(0.15)
            other.tell("take", 0, 80 * MIB, DATA)
            time.sleep(0.02)
        other.answer()
        assert gpus.held("a").peak == 90 * MIB


@pytest.mark.parametrize("how", ["fork", "clone"])
def test_a_child_may_not_use_the_connection_and_keeps_the_memory(gpus_with, clients_of, how):
    with gpus_with(ONE_CARD) as gpus, clients_of(gpus) as client:
        gpus.command("set", "free_delay_ms", 0)
        one = client("a")
        one.ask("take", 0, 50 * MIB, DATA)
        one.tell(how, 300)
        assert [int(word) for word in one.answer()] == [NOT_INITIALIZED] * 3 + [0]
        one.ask("take", 0, 2 * MIB, DATA)
        one.kill()
        assert gpus.used() == 52 * MIB
        gpus.eventually(lambda: gpus.used() == 0)


def test_shared_memory_stays_with_its_taker_until_nobody_has_it(gpus_with, clients_of):
    with gpus_with(ONE_CARD) as gpus, clients_of(gpus) as client:
        one, other = client("a"), client("b")
        mine = one.ask("take", 0, 50 * MIB, DATA)
        other.tell("share", mine)
        theirs, ordinal, size = (int(word) for word in other.answer())
        assert (ordinal, size) == (0, 50 * MIB)
        with pytest.raises(Refused):
            one.ask("share", 12345678)
        one.ask("give", mine)
        assert (gpus.held("a").data, gpus.held("b").data) == (50 * MIB, 0)
        one.kill()
        gpus.eventually(lambda: len(gpus.clients()) == 1)
        assert gpus.held("a").data == 50 * MIB
        other.ask("give", theirs)
        assert gpus.used() == 0


def test_nobody_gives_back_what_is_not_his(gpus_with, clients_of):
    with gpus_with(ONE_CARD) as gpus, clients_of(gpus) as client:
        mine = client("a").ask("take", 0, 50 * MIB, DATA)
        client("b").ask("give", mine)
        assert gpus.used() == 50 * MIB


def test_a_ledger_kept_in_the_client_asks_nothing_and_still_ends(gpus_with, clients_of):
    with gpus_with(ONE_CARD) as gpus, clients_of(gpus) as client:
        one = client("a", LEDGER="local")
        held = one.ask("take", 0, 60 * MIB, DATA)
        with pytest.raises(Refused):
            one.ask("take", 0, 42 * MIB, DATA)
        one.ask("take", 0, 40 * MIB, DATA)
        assert one.ask("free", 0) == 0
        one.ask("give", held)
        assert one.ask("free", 0) == 60 * MIB
        assert gpus.used() == 0


def test_killed_processes_leave_nothing(gpus_with, clients_of):
    """30 of them, with children, shared memory and work under way."""
    dice = random.Random(6)
    with gpus_with("gpu memory=4000\ngpu memory=4000\n") as gpus, clients_of(gpus) as client:
        everyone = [client(f"t{n % 4}") for n in range(30)]
        ids: list[int] = []
        for process in everyone:
            ids += [
                process.ask("take", dice.randrange(2), dice.randrange(1, 12 * MIB), DATA)
                for _ in range(8)
            ]
            process.tell("share", dice.choice(ids))
            process.answer()
            process.ask("queue", 0, dice.randrange(2))
            process.ask("run", 0, 50_000_000, 500, 20)
        for process in dice.sample(everyone, 5):
            process.tell("fork", 50)
            process.answer()
        assert gpus.used(0) + gpus.used(1) == sum(held.data for held in gpus.ledger()) > 0
        for process in everyone:
            process.kill()
        gpus.eventually(lambda: gpus.used(0) == gpus.used(1) == 0)
        assert all(held.bytes == 0 for held in gpus.ledger())
        assert gpus.clients() == []
        assert gpus.log == ""
