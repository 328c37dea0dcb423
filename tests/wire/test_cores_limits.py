"""What containers may have of idle compute, as the allocation's annotation spells it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from hami.domain.allocations import ContainerAllocation, ContainerKind
from hami.domain.errors import Malformed
from hami.domain.kubernetes.objects import Container
from hami.wire.codecs.cores_limits import decode_cores_limits, encode_cores_limits
from hami.wire.signature import payload

from .test_signature import ALLOCATION, UID, in_app

APP = ContainerKind.APP
MAIN = ContainerAllocation(name="main", kind=APP, cores_limit=80)
NAMES = st.from_regex(r"[a-z0-9][a-z0-9-]{0,20}", fullmatch=True)


def read(text, *names):
    return decode_cores_limits(text, [(Container(name=name), APP) for name in names or ("main",)])


def test_the_annotation_golden():
    side = replace(MAIN, name="side", cores_limit=100)
    assert encode_cores_limits([MAIN, replace(MAIN, name="none", cores_limit=0), side]) == (
        "main=80,side=100"
    )


@given(st.dictionaries(NAMES, st.integers(0, 100), max_size=5))
def test_what_is_written_is_read(limits):
    held = [ContainerAllocation(name=n, kind=APP, cores_limit=c) for n, c in limits.items()]
    assert read(encode_cores_limits(held), *limits) == {n: c for n, c in limits.items() if c}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("main", "<container>=<percent of a device>"),
        ("main=", "<container>=<percent of a device>"),
        ("main=101", "<container>=<percent of a device>"),
        ("main=0", "<container>=<percent of a device>"),
        ("main=080", "<container>=<percent of a device>"),
        ("main=80,", "<container>=<percent of a device>"),
        ("Main=80", "<container>=<percent of a device>"),
        ("other=80", "names no container of the pod"),
        ("main=80,main=90", "or one twice"),
    ],
)
def test_anything_else_is_malformed(text, words):
    found = read(text)
    assert isinstance(found, Malformed)
    assert words in str(found)
    assert "hami.io/allocated-gpucores-limit" in str(found)


def test_a_limit_is_signed_and_without_one_the_signed_bytes_are_as_before():
    limited = in_app(cores_limit=80)
    assert payload(UID, limited, 1) != payload(UID, in_app(cores_limit=81), 1)
    assert b"cores_limit" not in payload(UID, ALLOCATION, 1)
    assert b'"cores_limit":80' in payload(UID, limited, 1)
