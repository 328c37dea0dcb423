"""A resize over HTTP, the requests that a pod remembers, and the page that documents both."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hami.domain import reasons, resizes
from hami.domain.reasons import Reason
from hami.scheduler.web import resize_route
from hami.wire.bodies import BadBody
from hami.wire.resizes import (
    REMEMBERED,
    Remembered,
    ResizeBody,
    read_remembered,
    read_resize,
    remember,
)

PAGE = (Path(__file__).parents[2] / "docs" / "resize.md").read_text()

IDS = st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")
ENTRIES = st.builds(
    Remembered, IDS, st.integers(0, 2**62), st.from_regex(r"\A[0-9a-f]{16}\Z")
)  # fmt: skip


@given(st.lists(ENTRIES, max_size=20))
def test_a_pod_remembers_the_last_requests(entries):
    text = ""
    for entry in entries:
        text = remember(read_remembered(text), entry)
    assert list(read_remembered(text)) == entries[-REMEMBERED:]


@pytest.mark.parametrize("text", ["", "x", "a:1", "a:1:zz", ",,", "a:-1:0123456789abcdef"])
def test_what_nobody_of_ours_wrote_is_left_out(text):
    good = "b:2:0123456789abcdef"
    assert read_remembered(f"{text},{good}") == (Remembered("b", 2, "0123456789abcdef"),)


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_body_is_read_or_refused(body):
    assert isinstance(read_resize(body), ResizeBody | BadBody)


def test_the_digest_is_of_what_is_asked():
    def digest(text: str) -> str:
        read = read_resize(text.encode())
        assert isinstance(read, ResizeBody), read
        return read.digest

    one = digest('{"requestId": "a", "containers": [{"name": "c", "cores": 1}]}')
    assert digest('{"containers": [{"cores": 1, "name": "c"}], "requestId": "b"}') == one
    assert digest('{"requestId": "a", "containers": [{"name": "c", "cores": 2}]}') != one


# The page.


def test_the_body_on_the_page_can_be_sent():
    (text,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    read = read_resize(text.encode())
    assert isinstance(read, ResizeBody)
    assert msgspec.json.decode(msgspec.json.encode(read)) == msgspec.json.decode(text)


def test_every_refusal_of_ours_is_on_the_page():
    table = PAGE.partition("<!-- refusals -->")[2].partition("<!-- end -->")[0]
    rows = re.findall(r"^\| (`.*?`) \|", table, re.MULTILINE)
    documented = {word for row in rows for word in re.findall(r"`([^`]+)`", row)}
    ours = {value.word for value in vars(resizes).values() if isinstance(value, Reason)}
    used = {
        reasons.NO_MEMORY, reasons.NO_CORES, reasons.EXCLUSIVE_CONFLICT, reasons.QUOTA,
        reasons.NOT_HEALTHY, reasons.UNKNOWN_USAGE, reasons.NODE_UNREGISTERED,
    }  # fmt: skip
    assert documented == ours | {reason.word for reason in used}


def test_every_status_is_on_the_page():
    rows = re.findall(r"^\| (\d{3}) \|([^|]*)\|", PAGE, re.MULTILINE)
    documented = {
        (int(code), word) for code, words in rows for word in re.findall(r"`(\w+)`", words)
    }
    source = Path(resize_route.__file__).read_text()
    answered = re.findall(r'_refusal\((\d{3}), "(\w+)"', source)
    answered += re.findall(r'": \((\d{3}), "(\w+)"\)', source)
    assert documented == {(int(code), word) for code, word in answered}
