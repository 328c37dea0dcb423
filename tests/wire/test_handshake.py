"""The handshake annotation: every value anybody wrote, and texts nobody did."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hami.wire.codecs import (
    GivenUp,
    Reported,
    Requesting,
    Unintelligible,
    decode_handshake,
    encode_reported,
    encode_requesting,
)

AT_TEN = datetime.fromisoformat("2025-09-26 10:00:00")


@pytest.mark.parametrize(
    ("text", "handshake"),
    [
        pytest.param("Requesting_2025-09-26 10:00:00", Requesting(AT_TEN), id="asked at ten"),
        pytest.param("Requesting", Requesting(None), id="asked without a time"),
        pytest.param("Requesting_", Requesting(None), id="asked at an empty time"),
        pytest.param("Requesting_soon", Requesting(None), id="asked at no time"),
        pytest.param("Requesting_2025-9-26 10:00:00", Requesting(None), id="a month of one digit"),
        pytest.param("Requesting_2025-02-30 10:00:00", Requesting(None), id="no day of February"),
        pytest.param("Requesting_0000-01-01 10:00:00", Requesting(None), id="no year"),
        pytest.param("Requesting_2025-09-26T10:00:00Z", Requesting(None), id="another format"),
        pytest.param("xRequesting_2025-09-26 10:00:00", Requesting(AT_TEN), id="after other text"),
        pytest.param("Reported 2025-09-26 10:00:00.1 +0800 CST m=+0.5",
                     Reported("2025-09-26 10:00:00.1 +0800 CST m=+0.5"), id="a plugin lives"),
        pytest.param("Reported", Reported(""), id="a plugin lives at no time"),
        pytest.param("Deleted_2025-09-26 10:00:00", GivenUp(), id="given up by an old scheduler"),
        pytest.param("", Unintelligible(""), id="nothing"),
        pytest.param("hello", Unintelligible("hello"), id="something else"),
    ],
)  # fmt: skip
def test_reads(text, handshake):
    assert decode_handshake(text) == handshake


@pytest.mark.parametrize(
    ("zone", "text"),
    [
        pytest.param(UTC, "Requesting_2025-09-26 02:00:00", id="UTC"),
        pytest.param(timezone(timedelta(hours=8)), "Requesting_2025-09-26 10:00:00", id="Shanghai"),
    ],
)
def test_writes_the_wall_clock_of_the_zone_it_is_given(zone, text):
    now = datetime(2025, 9, 26, 2, 0, 0, 999_999, tzinfo=UTC)
    assert encode_requesting(now.astimezone(zone)) == text


@given(st.datetimes(timezones=st.just(UTC)))
def test_what_is_asked_reads_back_alike(now):
    expected = now.replace(tzinfo=None, microsecond=0)
    assert decode_handshake(encode_requesting(now)) == Requesting(expected)


@given(st.text() | st.from_regex(r"Requesting_\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"))
def test_no_text_raises(text):
    assert isinstance(decode_handshake(text), Requesting | Reported | GivenUp | Unintelligible)


@pytest.mark.parametrize("zone", [None, UTC, timezone(timedelta(hours=8))])
def test_an_answer_is_read_as_one(zone):
    text = encode_reported(AT_TEN.replace(tzinfo=zone, microsecond=7))
    assert text == "Reported 2025-09-26 10:00:00"
    assert decode_handshake(text) == Reported("2025-09-26 10:00:00")
