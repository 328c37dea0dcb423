"""The node lock: owner and time, old and new form."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hami.domain.errors import Malformed
from hami.wire.codecs import NodeLock, decode_node_lock, encode_node_lock

AT_TEN = datetime(2025, 9, 26, 10, 0, 0, tzinfo=UTC)
SHANGHAI = timezone(timedelta(hours=8))


@pytest.mark.parametrize(
    ("text", "lock"),
    [
        pytest.param("2025-09-26T10:00:00Z,default,pod-1",
                     NodeLock(at=AT_TEN, namespace="default", pod="pod-1"), id="UTC"),
        pytest.param("2025-09-26T18:00:00+08:00,default,pod-1",
                     NodeLock(at=AT_TEN, namespace="default", pod="pod-1"), id="the writer's zone"),
        pytest.param("2025-09-26T10:00:00Z", NodeLock(at=AT_TEN), id="an old lock has no owner"),
        pytest.param("2025-09-26T10:00:00.000000999Z,a,b",
                     NodeLock(at=AT_TEN, namespace="a", pod="b"), id="nanoseconds"),
        pytest.param("2025-09-26T10:00:00Z,,", NodeLock(at=AT_TEN), id="an owner without names"),
    ],
)  # fmt: skip
def test_reads(text, lock):
    assert decode_node_lock(text) == lock


@pytest.mark.parametrize(
    ("text", "position", "problem"),
    [
        pytest.param("", "time", "not a time", id="nothing"),
        pytest.param("2025-09-26T10:00:00Z,default", "", "2 parts", id="two parts"),
        pytest.param("2025-09-26T10:00:00Z,a,b,c", "", "4 parts", id="four parts"),
        pytest.param("soon,a,b", "time", "not a time", id="no time"),
        pytest.param("2025-09-26T10:00:00,a,b", "time", "not a time", id="no zone"),
        pytest.param("2025-09-26 10:00:00Z,a,b", "time", "not a time", id="a blank for the T"),
        pytest.param("20250926T100000Z,a,b", "time", "not a time", id="another ISO 8601 form"),
        pytest.param("2025-02-30T10:00:00Z,a,b", "time", "not a time", id="no day of February"),
        pytest.param("2025-09-26T24:00:00Z,a,b", "time", "not a time", id="hour 24"),
        pytest.param("2025-09-26T10:00:00+99:00,a,b", "time", "not a time", id="no such zone"),
        pytest.param("2025-09-26T10:00:00Z ,a,b", "time", "not a time", id="a blank after it"),
    ],
)
def test_faults_are_named(text, position, problem):
    bad = decode_node_lock(text)
    assert isinstance(bad, Malformed)
    assert (bad.annotation, bad.position) == ("hami.io/mutex.lock", position)
    assert problem in bad.problem


@pytest.mark.parametrize(
    ("lock", "text"),
    [
        pytest.param(NodeLock(at=AT_TEN, namespace="default", pod="pod-1"),
                     "2025-09-26T10:00:00Z,default,pod-1", id="UTC"),
        pytest.param(NodeLock(at=AT_TEN.astimezone(SHANGHAI), namespace="a", pod="b"),
                     "2025-09-26T18:00:00+08:00,a,b", id="another zone keeps its offset"),
        pytest.param(NodeLock(at=AT_TEN.replace(microsecond=9), namespace="a", pod="b"),
                     "2025-09-26T10:00:00Z,a,b", id="whole seconds"),
        pytest.param(NodeLock(at=AT_TEN), "2025-09-26T10:00:00Z", id="no owner, no commas"),
        pytest.param(NodeLock(at=AT_TEN.astimezone(timezone(timedelta(seconds=1268)))),
                     "2025-09-26T10:00:00Z", id="an offset with seconds becomes UTC"),
    ],
)  # fmt: skip
def test_writes(lock, text):
    assert encode_node_lock(lock) == text


@pytest.mark.parametrize(
    ("lock", "message"),
    [
        pytest.param(NodeLock(at=AT_TEN.replace(tzinfo=None)), "has no zone", id="no zone"),
        pytest.param(NodeLock(at=AT_TEN, namespace="a,b", pod="c"), "comma", id="a comma in it"),
        pytest.param(NodeLock(at=AT_TEN, namespace="a", pod="b,c"), "comma", id="in the pod"),
    ],
)
def test_refuses_to_write_what_nobody_could_read(lock, message):
    with pytest.raises(ValueError, match=message):
        encode_node_lock(lock)


minutes = st.integers(-14 * 60, 14 * 60)
names = st.text(st.characters(exclude_characters=","), max_size=12)
locks = st.builds(
    NodeLock,
    at=st.datetimes(
        min_value=datetime.fromisoformat("1900-01-01"),
        timezones=minutes.map(lambda m: timezone(timedelta(minutes=m))),
    ).map(lambda at: at.replace(microsecond=0)),
    namespace=names,
    pod=names,
)


@given(locks)
def test_what_is_written_reads_back_alike(lock):
    assert decode_node_lock(encode_node_lock(lock)) == lock


near = st.from_regex(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)(,a,b)?")


@given(st.text() | near)
def test_no_text_raises_and_a_lock_always_has_a_zone(text):
    lock = decode_node_lock(text)
    assert isinstance(lock, Malformed) or lock.at.tzinfo is not None
