"""What a container used in the last hour: the most memory, and compute by minutes."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hami.monitor.table import SliceFigures
from hami.monitor.usage_history import HourOfUse, UsageHistory
from tests.monitor.tables import a_node, a_slice, held


def ticks(*seen: tuple[float, int, float | None]) -> HourOfUse | None:
    """Each of ``seen`` is a moment in seconds, bytes and percent."""
    history = UsageHistory()
    for now, used, percent in seen:
        history.observe(a_node(using(used, percent)), now)
    return ask(history)


def using(used: int, percent: float | None = None, **more: object) -> SliceFigures:
    return a_slice("train-0", held(used_bytes=used, utilisation=percent), **more)


def ask(history: UsageHistory) -> HourOfUse | None:
    figures = using(0)
    return history.last_hour(figures, figures.devices[0])


def hour(minutes: int, most: int, p95: float | None) -> HourOfUse:
    return HourOfUse(minutes=minutes, max_used_bytes=most, p95_utilisation=p95)


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        pytest.param([(0, 5, 10.0)], hour(1, 5, 10), id="one tick"),
        pytest.param([(0, 5, None)], hour(1, 5, None), id="nobody knows the compute"),
        pytest.param([(0, 0, 0.0)], hour(1, 0, 0), id="idle is known"),
        pytest.param([(0, 9, 0.0), (30, 1, 0.0)], hour(1, 9, 0), id="the most memory stays"),
        pytest.param([(0, 0, 10.0), (30, 0, 30.0)], hour(1, 0, 20), id="compute is the mean of a minute"),
        pytest.param([(0, 0, 10.0), (60, 0, 30.0)], hour(2, 0, 30), id="of two minutes the greater"),
        pytest.param([(0, 9, 90.0), (3599, 1, 1.0)], hour(2, 9, 90), id="within the hour"),
        pytest.param([(0, 9, 90.0), (3600, 1, 1.0)], hour(1, 1, 1), id="an hour later it is forgotten"),
        pytest.param([(0, 9, 90.0), (10**13, 1, 1.0)], hour(1, 1, 1), id="after a long pause too"),
        pytest.param([*((60 * m, 9, 90.0) for m in range(60)), (60 * 119, 1, 1.0)], hour(1, 1, 1), id="all of a full hour"),
        pytest.param([(600, 9, 90.0), (0, 1, 10.0)], hour(1, 9, 50), id="a clock that goes back stays where it was"),
        pytest.param([(60 * m, 0, 100.0 if m < 3 else 5.0) for m in range(60)], hour(60, 0, 5), id="three minutes of sixty do not count"),
        pytest.param([(60 * m, 0, 100.0 if m < 4 else 5.0) for m in range(60)], hour(60, 0, 100), id="four do"),
    ],
)  # fmt: skip
def test_an_hour(seen, expected):
    assert ticks(*seen) == expected


def test_who_was_never_seen_has_no_hour():
    assert ask(UsageHistory()) is None


def test_a_container_keeps_its_hour_over_restarts():
    history = UsageHistory()
    history.observe(a_node(using(9, id="first")), 0)
    history.observe(a_node(using(1, id="second")), 1)
    assert ask(history) == hour(1, 9, None)


def test_who_went_is_forgotten():
    history = UsageHistory()
    history.observe(a_node(using(9)), 0)
    history.observe(a_node(), 1)
    assert ask(history) is None


def test_two_slices_in_one_tick_are_both_seen():
    history = UsageHistory()
    history.observe(a_node(using(9, id="old"), using(1, id="new")), 0)
    assert ask(history) == hour(1, 9, None)


@pytest.mark.parametrize(
    "other", [{"container": "side"}, {"vendor": "ACME"}, {"pod_uid": "uid-other"}]
)
def test_others_have_hours_of_their_own(other):
    history = UsageHistory()
    history.observe(a_node(using(9, **other), using(1)), 0)
    assert ask(history) == hour(1, 1, None)


def test_devices_have_hours_of_their_own():
    history = UsageHistory()
    figures = a_slice("train-0", held(0, used_bytes=1), held(1, used_bytes=2))
    history.observe(a_node(figures), 0)
    assert [history.last_hour(figures, device).max_used_bytes for device in figures.devices] == [
        1,
        2,
    ]


@pytest.mark.parametrize(
    ("counters", "minutes"),
    [
        pytest.param([(0, 1000)], 0, id="waiting before the first look is not of this hour"),
        pytest.param([(0, 0), (10, 30)], 0, id="half a minute is not more than that"),
        pytest.param([(0, 0), (10, 16), (20, 32)], 1, id="ticks of a minute are summed"),
        pytest.param([(0, 0), (30, 20), (60, 40), (90, 60)], 1, id="minutes are not"),
        pytest.param([(0, 0), (10, 500)], 1, id="many threads wait in one minute at most"),
        pytest.param([(0, 900), (10, 31)], 1, id="a new slice counts from 0"),
        pytest.param([(0, 0), (10, 40), (3600, 40)], 0, id="an hour later it is forgotten"),
    ],
)
def test_minutes_of_waiting(counters, minutes):
    history = UsageHistory()
    for now, seconds in counters:
        history.observe(a_node(a_slice("train-0", held(waited_seconds=float(seconds)))), now)
    assert ask(history).waited_minutes == minutes


steps = st.tuples(st.floats(0, 900), st.integers(0, 1 << 45), st.floats(0, 100) | st.none())


@given(st.lists(steps, min_size=1, max_size=80))
def test_an_hour_is_what_a_plain_recount_says(taken):
    now, seen = 0.0, []
    for pause, used, percent in taken:
        now += pause
        seen.append((now, used, percent))
    last = int(now // 60)
    within = [
        (int(at // 60), used, percent) for at, used, percent in seen if int(at // 60) > last - 60
    ]
    minutes: dict[int, list[float]] = {}
    for minute, _, percent in within:
        if percent is not None:
            minutes.setdefault(minute, []).append(percent)
    means = sorted(math.fsum(percents) / len(percents) for percents in minutes.values())
    found = ticks(*seen)
    assert found.max_used_bytes == max(used for _, used, _ in within)
    assert found.minutes == len({minute for minute, _, _ in within})
    if means:
        enough = [mean for mean in means if sum(m <= mean for m in means) >= 0.95 * len(means)]
        assert found.p95_utilisation == pytest.approx(enough[0])
    else:
        assert found.p95_utilisation is None
