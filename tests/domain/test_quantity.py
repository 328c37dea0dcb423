"""Kubernetes quantities as a device resource means them: readings, refusals, laws."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hami.domain.kubernetes.quantity import (
    BadQuantity,
    Quantity,
    limited_memory,
    parse,
    requested_memory,
    whole_number,
)
from hami.domain.units import MAX_DEVICE_MEMORY, MIB

NOT_ONE = "is not a quantity"
NEGATIVE = "is negative"
BROKEN = "is not a whole number"


def said(answer: int | BadQuantity) -> int | str:
    """The number, or the problem without the text that it is about."""
    return answer.problem if isinstance(answer, BadQuantity) else answer


@pytest.mark.parametrize(
    ("text", "requested", "limited"),
    [
        pytest.param("3000", 3000, 3000, id="a plain number is MiB"),
        pytest.param("3k", 3000, 3000, id="fix: 3k is how the API server writes 3000"),
        pytest.param("1M", 1_000_000, 1_000_000, id="fix: 1M is how it writes 1000000"),
        pytest.param("1e3", 1000, 1000, id="an exponent is a plain number"),
        pytest.param("1E3", 1000, 1000, id="a capital exponent too"),
        pytest.param("1e+3", 1000, 1000, id="a signed exponent too"),
        pytest.param("25e-1", BROKEN, BROKEN, id="a negative exponent may leave a fraction"),
        pytest.param("16Gi", 16384, 16384, id="fix: a binary suffix means bytes"),
        pytest.param("512Mi", 512, 512, id="Mi is MiB"),
        pytest.param("0.5Gi", 512, 512, id="half a GiB"),
        pytest.param("1.5Mi", 2, 1, id="bytes go up for requests and down for limits"),
        pytest.param("1Ki", 1, 0, id="a KiB asks for one MiB and allows none"),
        pytest.param("1048577Ki", 1025, 1024, id="one KiB over a GiB"),
        pytest.param("1.5k", 1500, 1500, id="1.5k is 1500"),
        pytest.param("1000m", 1, 1, id="1000 thousandths are one"),
        pytest.param("1500m", BROKEN, BROKEN, id="fix: 1500 thousandths are no whole number"),
        pytest.param("1.5", BROKEN, BROKEN, id="fix: a fraction is refused"),
        pytest.param("1n", BROKEN, BROKEN, id="a billionth is refused"),
        pytest.param("1000000000n", 1, 1, id="enough billionths are one"),
        pytest.param("0", 0, 0, id="zero"),
        pytest.param("0Gi", 0, 0, id="zero GiB"),
        pytest.param("-0", 0, 0, id="minus zero is zero"),
        pytest.param("+5", 5, 5, id="a plus sign"),
        pytest.param("5.", 5, 5, id="a point with nothing behind"),
        pytest.param(".5Gi", 512, 512, id="a point with nothing before"),
        pytest.param("-1", NEGATIVE, NEGATIVE, id="negative"),
        pytest.param("-1Gi", NEGATIVE, NEGATIVE, id="negative bytes"),
        pytest.param("-500m", NEGATIVE, NEGATIVE, id="a negative fraction is negative first"),
        pytest.param("", NOT_ONE, NOT_ONE, id="empty"),
        pytest.param(" 1", NOT_ONE, NOT_ONE, id="a space before"),
        pytest.param("1 ", NOT_ONE, NOT_ONE, id="a space behind"),
        pytest.param("1\n", NOT_ONE, NOT_ONE, id="a line feed behind"),
        pytest.param("1_000", NOT_ONE, NOT_ONE, id="an underscore"),
        pytest.param("1,000", NOT_ONE, NOT_ONE, id="a comma"),
        pytest.param("0x10", NOT_ONE, NOT_ONE, id="hexadecimal"),
        pytest.param("Gi", NOT_ONE, NOT_ONE, id="a suffix alone"),
        pytest.param(".", NOT_ONE, NOT_ONE, id="a point alone"),
        pytest.param("1GB", NOT_ONE, NOT_ONE, id="GB is no suffix"),
        pytest.param("1gi", NOT_ONE, NOT_ONE, id="suffixes are case sensitive"),
        pytest.param("1K", NOT_ONE, NOT_ONE, id="kilo is a small k"),
        pytest.param("1e", NOT_ONE, NOT_ONE, id="an exponent without digits"),
        pytest.param("1e100", NOT_ONE, NOT_ONE, id="an exponent of three digits"),
        pytest.param("nan", NOT_ONE, NOT_ONE, id="not a number"),
        pytest.param("inf", NOT_ONE, NOT_ONE, id="infinity"),
        pytest.param("9" * 100_000, NOT_ONE, NOT_ONE, id="a very long text"),
        pytest.param("١٢", NOT_ONE, NOT_ONE, id="arabic digits"),
        pytest.param("\uff11\uff12", NOT_ONE, NOT_ONE, id="full-width digits"),
        pytest.param("1²", NOT_ONE, NOT_ONE, id="a superscript"),
        pytest.param("--1", NOT_ONE, NOT_ONE, id="two signs"),
    ],
)
def test_memory(text, requested, limited):
    assert (said(requested_memory(text)), said(limited_memory(text))) == (requested, limited)


@pytest.mark.parametrize(
    ("text", "factor", "expected"),
    [
        pytest.param("100", 256, 25600, id="100 units of 256 MiB"),
        pytest.param("1k", 256, 256_000, id="a decimal suffix counts units too"),
        pytest.param("1000", 2, 2000, id="units of 2 MiB"),
        pytest.param("1Gi", 256, 1024, id="a binary suffix means bytes whatever the unit"),
        pytest.param("1Gi", 2, 1024, id="bytes are not doubled"),
        pytest.param("1500m", 2, BROKEN, id="half a unit is refused before it is multiplied"),
        pytest.param("7", 0, 7, id="a factor of 0 means 1"),
    ],
)
def test_factor(text, factor, expected):
    assert said(requested_memory(text, factor)) == said(limited_memory(text, factor)) == expected


@pytest.mark.parametrize(
    ("text", "factor", "expected"),
    [
        pytest.param(
            "500M",
            1,
            "'500M' is 500000000 MiB, more than any device has "
            "(500M counts MiB; write 500Mi for bytes)",
            id="fix: 500M is not silently 500 bytes, and the remedy is named",
        ),
        pytest.param(
            "16G",
            1,
            "'16G' is 16000000000 MiB, more than any device has "
            "(16G counts MiB; write 16Gi for bytes)",
            id="16G was meant as 16Gi",
        ),
        pytest.param(
            "2M",
            256,
            "'2M' is 512000000 MiB, more than any device has "
            "(2M counts units of 256 MiB; write 2Mi for bytes)",
            id="units of 256 MiB are named",
        ),
        pytest.param(
            "17179869184",
            1,
            "'17179869184' is 17179869184 MiB, more than any device has "
            "(it counts MiB; write 16384Mi for that many bytes)",
            id="bytes written out",
        ),
        pytest.param(
            "1Ei",
            1,
            "'1Ei' is 1099511627776 MiB, more than any device has",
            id="bytes that no device has leave nothing to suggest",
        ),
        pytest.param("16777216", 1, 16777216, id="the bound itself is allowed"),
        pytest.param("16Ti", 1, 16777216, id="the bound itself in bytes"),
        pytest.param(
            "16777217",
            1,
            "'16777217' is 16777217 MiB, more than any device has "
            "(it counts MiB; write 16Mi for that many bytes)",
            id="one above the bound",
        ),
        pytest.param(
            "8388609",
            2,
            "'8388609' is 16777218 MiB, more than any device has "
            "(it counts units of 2 MiB; write 8Mi for that many bytes)",
            id="the bound holds after the factor",
        ),
        pytest.param(
            "65537",
            256,
            "'65537' is 16777472 MiB, more than any device has",
            id="as many bytes are less than a MiB: nothing to suggest",
        ),
    ],
)
def test_more_than_any_device_has(text, factor, expected):
    answer = requested_memory(text, factor)
    assert (answer if isinstance(answer, int) else str(answer)) == expected


def test_a_quota_may_limit_more_than_one_device_has():
    assert limited_memory("1Pi") == 1 << 30
    assert limited_memory("500M") == 500_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("2", 2, id="two"),
        pytest.param("1k", 1000, id="a thousand"),
        pytest.param("2000m", 2, id="2000 thousandths"),
        pytest.param("1Ki", 1024, id="a binary suffix is a number here"),
        pytest.param("1500m", BROKEN, id="one and a half"),
        pytest.param("-1", NEGATIVE, id="negative"),
        pytest.param("two", NOT_ONE, id="a word"),
    ],
)
def test_whole_number(text, expected):
    assert said(whole_number(text)) == expected


def test_messages_name_the_text_shortened():
    assert str(parse("1_000")) == "'1_000' is not a quantity"
    assert str(parse("x" * 1000)) == f"'{'x' * 39}…' is not a quantity"


# Laws.

numbers = st.integers(0, MAX_DEVICE_MEMORY)
factors = st.sampled_from([1, 2, 4, 256, 512])


def as_the_api_server_writes(number: int) -> str:
    """Its canonical form: the largest decimal suffix that leaves a whole number."""
    exponent = 0
    while number and number % 1000 == 0 and exponent < 6:
        number, exponent = number // 1000, exponent + 1
    return f"{number}{' kMGTPE'[exponent].strip()}"


@given(number=numbers | numbers.map(lambda n: n * 1000), factor=factors)
def test_the_api_servers_rewriting_never_changes_the_meaning(number, factor):
    plain, rewritten = str(number), as_the_api_server_writes(number)
    assert limited_memory(rewritten, factor) == limited_memory(plain, factor)
    assert whole_number(rewritten) == whole_number(plain)
    read = requested_memory(plain, factor)
    if isinstance(read, int):
        assert requested_memory(rewritten, factor) == read
    else:
        assert isinstance(requested_memory(rewritten, factor), BadQuantity)


@given(mebibytes=st.integers(0, 1 << 14), factor=factors)
def test_bytes_mean_the_same_in_every_binary_suffix(mebibytes, factor):
    spellings = (f"{mebibytes}Mi", f"{mebibytes * 1024}Ki", f"{mebibytes / 1024}Gi")
    assert {requested_memory(text, factor) for text in spellings} == {mebibytes}


@given(kibibytes=st.integers(0, 1 << 24))
def test_a_request_never_gets_less_and_a_limit_never_allows_more(kibibytes):
    exact = Fraction(kibibytes * 1024, MIB)
    asked, allowed = requested_memory(f"{kibibytes}Ki"), limited_memory(f"{kibibytes}Ki")
    assert allowed <= exact <= asked
    assert asked - allowed <= 1


looks_like_one = st.from_regex(r"[+-]?[0-9]{0,9}\.?[0-9]{0,9}([KMGTPE]i?|[numk]|[eE]-?[0-9]+)?")


@given(text=st.text() | looks_like_one, factor=factors)
def test_no_text_raises_and_no_answer_is_negative(text, factor):
    read = parse(text)
    assert isinstance(read, Quantity | BadQuantity)
    for answer in (requested_memory(text, factor), limited_memory(text, factor)):
        assert isinstance(answer, BadQuantity) or answer >= 0
    if isinstance(read, BadQuantity):
        assert requested_memory(text, factor) == limited_memory(text, factor) == read


@given(number=st.integers(1, 10**30), suffix=st.sampled_from(["", *"kMGTPE"]), factor=factors)
def test_a_remedy_is_always_one_that_would_be_accepted(number, suffix, factor):
    answer = requested_memory(f"{number}{suffix}", factor)
    remedy = re.search(r"write (\S+) for", str(answer))
    if isinstance(answer, BadQuantity) and remedy:
        assert isinstance(requested_memory(remedy[1], factor), int)


@pytest.mark.parametrize("text", ["1e99", "1E", "9999999999999999999"])
def test_nothing_is_suggested_for_what_is_absurd_in_bytes_too(text):
    answer = requested_memory(text)
    assert isinstance(answer, BadQuantity)
    assert answer.problem.endswith("more than any device has")
