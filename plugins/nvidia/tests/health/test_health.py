"""Which devices are well, how they fall ill and how they recover."""

import pytest
from hami_nvidia.health.condition import WELL, after_answer, after_error, after_failure
from hami_nvidia.health.watch import ANEW_SECONDS, HealthWatch
from hami_nvidia.health.xids import NEEDS_RESET, PROGRAMS_FAULT, xid_filter
from hami_nvidia.nvml.interface import Recovery, XidEvent
from hypothesis import given
from hypothesis import strategies as st

from hami.domain.devices import Device

from ..devices.test_discovery import cut
from ..hardware_builders import (
    bring_back,
    discovered,
    lose,
    mig,
    settings,
    simulated,
    take_driver_away,
    uuids,
)

QUIET = 300.0


class Node:
    """A watched node whose time stands still until it is told to pass."""

    def __init__(self, tmp_path, gpus="t4x2", with_=None):
        self.nvml = simulated(tmp_path, gpus)
        self.settings = with_ or settings()
        self.now = 1000.0
        self.watch = HealthWatch(self.nvml, wait_seconds=0, clock=lambda: self.now)
        self.devices = discovered(self.nvml, self.settings)
        assert self.changes() == {}

    def changes(self):
        """What the agent is told, which it believes: by the device's place among the first."""
        places = {device.id: place for place, device in enumerate(self.devices)}
        found = {
            places[change.device_id]: (change.healthy, change.cause)
            for change in self.watch.check(self.devices, self.settings)
        }
        self.devices = [
            Device(**{**fields(d), "healthy": found.get(n, (d.healthy,))[0]})
            for n, d in enumerate(self.devices)
        ]
        return found

    def health(self):
        return {place: healthy for place, (healthy, _) in self.changes().items()}

    def xid(self, xid, gpu=0, **ids):
        uuid = None if gpu is None else uuids(self.nvml)[gpu]
        self.nvml.state.add_event(xid, uuid, **ids)

    def recovery(self, recovery, gpu=0):
        with self.nvml.state.changing() as state:
            state.gpu(uuids(self.nvml)[gpu]).recovery = recovery

    def passes(self, seconds):
        self.now += seconds
        return self


def fields(device):
    return {name: getattr(device, name) for name in Device.__slots__}


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)


# Errors.


def test_a_critical_error_makes_one_gpu_ill(node):
    node.xid(94)
    assert node.changes() == {0: (False, "XID 94")}
    assert node.watch.ailing() == {uuids(node.nvml)[0]: "XID 94"}
    assert node.changes() == {}


def test_an_error_of_nobody_is_everybodys(node):
    node.xid(94, gpu=None)
    assert node.health() == {0: False, 1: False}


def test_an_error_of_an_unknown_gpu_is_nobodys(node):
    node.nvml.state.add_event(94, "GPU-of-somebody-else")
    assert node.changes() == {}


def test_errors_before_the_watch_do_not_count(tmp_path):
    simulated(tmp_path, "t4x2").state.add_event(94, None)
    assert Node(tmp_path).changes() == {}


@pytest.mark.parametrize("xid", sorted(PROGRAMS_FAULT))
def test_a_programs_fault_is_not_the_gpus(node, xid):
    node.xid(xid)
    assert node.changes() == {}


def test_several_errors_at_once_are_one_change(node):
    node.recovery(Recovery.UNKNOWN)
    for xid in (94, 31, 94, 79):
        node.xid(xid)
    assert node.changes() == {0: (False, "XID 79, which needs a reset of the GPU")}


def test_only_the_first_error_is_waited_for(node):
    waits = []

    class Busy:
        refused = {}  # noqa: RUF012

        def wait(self, seconds):
            waits.append(seconds)
            return XidEvent(xid=94) if len(waits) < 3 else None

        def close(self):
            pass

    node.nvml.watch = lambda gpus: Busy()
    watch = HealthWatch(node.nvml, wait_seconds=5, clock=lambda: node.now)
    assert len(watch.check(node.devices, node.settings)) == 2
    assert waits == [5, 0, 0]


@pytest.mark.parametrize(
    ("disable", "enable", "ill", "well"),
    [
        pytest.param("", "", [79, 94, 1], [13, 31, 43, 45, 68, 109], id="by default"),
        pytest.param("94,95", "", [79], [94, 95, 13], id="some more are disabled"),
        pytest.param("all", "", [], [79, 94], id="all are disabled"),
        pytest.param("xids", "", [], [79], id="in the other word"),
        pytest.param("ALL", "", [], [79], id="in capitals"),
        pytest.param("all", "79", [79], [94, 13], id="all but one: HAMi forgets that one"),
        pytest.param("94", "94", [94], [], id="enabled wins"),
        pytest.param("", "13, 31", [13, 31], [43], id="a default is enabled"),
        pytest.param("all", "all", [79, 13], [], id="all are enabled"),
        pytest.param("x,,-1,9x,94", "", [79], [94], id="what is no number is ignored"),
    ],
)
def test_which_errors_count(disable, enable, ill, well):
    counting = xid_filter(disable, enable)
    assert [xid for xid in ill if not counting.counts(xid)] == []
    assert [xid for xid in well if counting.counts(xid)] == []


def test_the_settings_say_which_count(tmp_path):
    node = Node(tmp_path, with_=settings(disableHealthChecks="all", enableHealthChecks="79"))
    node.xid(94)
    assert node.changes() == {}
    node.xid(79)
    assert node.health() == {0: False}


# Recovery.


def test_a_gpu_recovers_when_it_is_quiet(node):
    node.xid(94)
    assert node.health() == {0: False}
    assert node.passes(QUIET - 1).changes() == {}
    assert node.passes(1).changes() == {
        0: (True, "it answers, and nothing is wrong with it any more")
    }
    assert node.watch.ailing() == {}


def test_another_error_starts_the_quiet_time_anew(node):
    node.xid(94)
    node.health()
    node.passes(QUIET - 1).xid(63)
    assert node.changes() == {}
    assert node.passes(1).changes() == {}
    assert node.passes(QUIET - 1).health() == {0: True}


def test_the_quiet_time_is_an_option(tmp_path):
    node = Node(tmp_path, with_=settings(healthRecovery=5.0))
    node.xid(94)
    assert node.health() == {0: False}
    assert node.passes(5).health() == {0: True}


def test_recovery_can_be_turned_off(tmp_path):
    node = Node(tmp_path, with_=settings(healthRecovery=0.0))
    node.xid(94)
    assert node.health() == {0: False}
    assert node.passes(10 * QUIET).changes() == {}


@pytest.mark.parametrize("xid", sorted(NEEDS_RESET))
def test_an_error_that_needs_a_reset_stays(tmp_path, xid):
    node = Node(tmp_path)
    node.recovery(Recovery.UNKNOWN)
    node.xid(xid)
    assert node.health() == {0: False}
    assert node.passes(10 * QUIET).changes() == {}
    lose(node.nvml)
    assert node.changes() == {}
    bring_back(node.nvml)
    assert node.health() == {0: True}, "it did not answer and does again: it was reset"


def test_a_driver_that_knows_better_decides_whether_a_reset_is_needed(node):
    node.xid(48)
    assert node.health() == {0: False}
    assert node.passes(QUIET).health() == {0: True}


@pytest.mark.parametrize("demand", [Recovery.RESET, Recovery.REBOOT, Recovery.DRAIN])
def test_a_gpu_of_which_the_driver_demands_something_is_ill(node, demand):
    node.recovery(demand)
    assert node.changes() == {0: (False, f"the driver demands {demand.value}")}
    node.recovery(Recovery.NONE)
    assert node.health() == {0: True}


# GPUs and drivers that do not answer.


def test_a_lost_gpu_is_ill_until_it_answers(node):
    lose(node.nvml, 1)
    assert node.health() == {1: False}
    assert node.changes() == {}
    bring_back(node.nvml, 1)
    assert node.health() == {1: True}


def test_a_gpu_that_came_back_is_watched_again(node):
    lose(node.nvml, 1)
    node.changes()
    bring_back(node.nvml, 1)
    node.changes()
    node.xid(94, gpu=1)
    assert node.changes() == {1: (False, "XID 94")}


def test_nvml_is_started_anew_while_a_gpu_is_lost(node, monkeypatch):
    started = []
    monkeypatch.setattr(node.nvml, "close", lambda: started.append(node.now))
    lose(node.nvml)
    node.changes()
    node.passes(ANEW_SECONDS).changes()
    node.passes(1).changes()
    assert started == [1000.0 + ANEW_SECONDS]


def test_without_a_driver_all_are_ill_until_it_is_back(node):
    take_driver_away(node.nvml)
    assert node.changes() == dict.fromkeys(
        (0, 1), (False, "NVML cannot be initialised: Driver Not Loaded")
    )
    assert node.changes() == {}
    take_driver_away(node.nvml, "")
    assert node.health() == {0: True, 1: True}
    node.xid(94)
    assert node.health() == {0: False}


def test_a_new_driver_forgets_errors(node):
    node.xid(79)
    assert node.health() == {0: False}
    take_driver_away(node.nvml)
    assert node.health() == {1: False}
    take_driver_away(node.nvml, "")
    assert node.health() == {0: True, 1: True}


def test_a_query_that_fails_makes_ill_and_is_no_reset(node):
    node.recovery(Recovery.UNKNOWN)
    node.xid(48)
    node.changes()
    with node.nvml.state.changing() as state:
        state.failing["probe"] = "Unknown Error"
    assert node.health() == {1: False}
    with node.nvml.state.changing() as state:
        state.failing.clear()
    assert node.passes(10 * QUIET).health() == {1: True}


def test_a_gpu_that_cannot_be_watched_is_ill(tmp_path):
    node = Node(tmp_path)
    node.watch.close()
    with node.nvml.state.changing() as state:
        state.failing["watch"] = "Insufficient Permissions"
    assert node.changes()[0] == (False, "NVML: watch: Insufficient Permissions")
    with node.nvml.state.changing() as state:
        state.failing.clear()
    assert node.changes() == {}
    assert node.passes(ANEW_SECONDS).changes() == {}
    assert node.health() == {0: True, 1: True}


# Being told.


def test_a_change_is_told_once_for_the_same_devices(node):
    node.xid(94)
    devices = list(node.devices)
    assert len(node.watch.check(devices, node.settings)) == 1
    assert node.watch.check(devices, node.settings) == []


def test_a_change_that_a_discovery_overran_is_told_again(node):
    node.xid(94)
    before = list(node.devices)
    assert node.health() == {0: False}
    assert node.changes() == {}
    node.devices = before
    assert node.health() == {0: False}


def test_a_change_that_a_discovery_overran_at_once_is_told_again_a_little_later(node):
    node.xid(94)
    before = list(node.devices)
    assert len(node.watch.check(before, node.settings)) == 1
    assert [len(node.watch.check(before, node.settings)) for _ in range(2)] == [0, 1]


def test_a_discovery_that_already_knows_is_no_change(node):
    node.xid(94)
    node.watch.check(node.devices, node.settings)
    node.devices = discovered(node.nvml, ailing=node.watch.ailing())
    assert [device.healthy for device in node.devices] == [False, True]
    assert node.changes() == {}
    assert node.passes(QUIET).health() == {0: True}


# MIG.


def test_a_gpu_becomes_usable_when_mig_is_turned_on(tmp_path):
    node = Node(tmp_path, "a100-40g", mig())
    assert [device.healthy for device in node.devices] == [False]
    node.nvml.set_mig(node.devices[0].id, enabled=True)
    assert node.health() == {0: True}


def three_parts(tmp_path):
    nvml = simulated(tmp_path, [{"model": "a100-40g", "mig": True}])
    if not nvml.instances(uuids(nvml)[0]):
        cut(nvml, 0, ("1g.5gb", 0), ("1g.5gb", 1), ("1g.5gb", 2))
    return Node(tmp_path, [{"model": "a100-40g", "mig": True}], settings(migStrategy="single"))


@pytest.mark.parametrize(
    ("ids", "ill"),
    [
        pytest.param({}, {0, 1, 2}, id="of the GPU: all of them"),
        pytest.param({"gpu_instance": 8}, {1}, id="of a GPU instance"),
        pytest.param({"gpu_instance": 8, "compute_instance": 0}, {1}, id="of a compute instance"),
        pytest.param({"gpu_instance": 8, "compute_instance": 1}, set(), id="of another one"),
        pytest.param({"gpu_instance": 10}, set(), id="of an instance that nobody has"),
    ],
)
def test_an_error_of_a_mig_device(tmp_path, ids, ill):
    node = three_parts(tmp_path)
    node.xid(94, **ids)
    assert node.health() == dict.fromkeys(ill, False)


def test_mig_devices_are_lost_and_come_back_with_their_gpu(tmp_path):
    node = three_parts(tmp_path)
    lose(node.nvml)
    assert node.health() == dict.fromkeys((0, 1, 2), False)
    bring_back(node.nvml)
    assert node.health() == dict.fromkeys((0, 1, 2), True)


def test_a_mig_device_that_was_destroyed_is_ill(tmp_path):
    node = three_parts(tmp_path)
    node.nvml.destroy_compute(uuids(node.nvml)[0], 8, 0)
    assert node.health() == {1: False}


# Laws.

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("xid"), st.sampled_from([48, 79, 94, 63])),
        st.tuples(st.just("fails"), st.booleans()),
        st.tuples(st.just("answers"), st.sampled_from(Recovery)),
        st.tuples(st.just("waits"), st.integers(1, 400)),
    ),
    max_size=30,
)


def lived(steps):
    condition, now = WELL, 0.0
    for what, value in steps:
        if what == "xid":
            condition = after_error(condition, value, now)
        elif what == "fails":
            condition = after_failure(condition, "no answer", lost=value)
        elif what == "answers":
            condition = after_answer(condition, value, now, QUIET)
        else:
            now += value
    return condition, now


@given(STEPS)
def test_a_healthy_condition_has_no_cause_and_an_ill_one_has(steps):
    condition, _ = lived(steps)
    assert condition.healthy is (condition.cause == "")


@given(STEPS)
def test_every_gpu_recovers_by_a_reset(steps):
    condition, now = lived(steps)
    lost = after_failure(condition, "being reset", lost=True)
    assert after_answer(lost, Recovery.UNKNOWN, now, QUIET) == WELL


@given(STEPS)
def test_no_gpu_recovers_from_an_error_before_the_quiet_time_unless_it_was_lost(steps):
    condition, now = lived(steps)
    struck = after_error(condition, 94, now)
    answered = after_answer(struck, Recovery.NONE, now + QUIET - 1, QUIET)
    assert answered.healthy is struck.lost
