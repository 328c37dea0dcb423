"""Vendor-only data: typed keys, value equality, JSON both ways."""

from __future__ import annotations

import json
from dataclasses import dataclass

import msgspec
import pytest

from hami.domain.extra import NO_EXTRA, Extra, ExtraKey


@dataclass(frozen=True)
class Place:
    start: int
    size: int


@dataclass(frozen=True)
class Instance:
    profile: str
    place: Place


INSTANCE = ExtraKey("acme.instance", Instance)
MASK = ExtraKey("acme.mask", int)
PLACES = ExtraKey("zeta.places", tuple[Place, ...])

ONE = Instance("1g", Place(4, 1))


def test_what_is_put_in_comes_out_under_its_key_alone():
    extra = NO_EXTRA.with_(INSTANCE, ONE)
    assert extra.get(INSTANCE) == ONE
    assert extra.get(MASK) is None
    assert NO_EXTRA.get(INSTANCE) is None


def test_a_second_value_replaces_the_first_in_a_copy():
    first = NO_EXTRA.with_(MASK, 1)
    assert first.with_(MASK, 2).get(MASK) == 2
    assert first.get(MASK) == 1


def test_the_order_of_setting_does_not_matter():
    one_way = NO_EXTRA.with_(INSTANCE, ONE).with_(MASK, 3)
    other_way = NO_EXTRA.with_(MASK, 3).with_(INSTANCE, ONE)
    assert one_way == other_way
    assert hash(one_way) == hash(other_way)
    assert list(one_way.encode()) == ["acme.instance", "acme.mask"]


def test_only_an_empty_one_is_false():
    assert not NO_EXTRA
    assert NO_EXTRA.with_(MASK, 0)
    assert Extra() == NO_EXTRA
    assert NO_EXTRA.encode() == {}


def test_json_golden():
    extra = NO_EXTRA.with_(PLACES, (Place(0, 2),)).with_(INSTANCE, ONE).with_(MASK, 15)
    assert json.dumps(extra.encode()) == (
        '{"acme.instance": {"profile": "1g", "place": {"start": 4, "size": 1}}, '
        '"acme.mask": 15, "zeta.places": [{"start": 0, "size": 2}]}'
    )


@pytest.mark.parametrize(
    ("key", "value"),
    [
        pytest.param(INSTANCE, ONE, id="a nested dataclass"),
        pytest.param(MASK, 7, id="a number"),
        pytest.param(PLACES, (Place(0, 2), Place(2, 2)), id="a tuple of dataclasses"),
        pytest.param(PLACES, (), id="an empty tuple"),
    ],
)
def test_values_survive_json(key, value):
    assert key.decode(json.loads(json.dumps(key.encode(value)))) == value


@pytest.mark.parametrize(
    "data",
    [
        pytest.param({"profile": "1g"}, id="a field is missing"),
        pytest.param({"profile": 1, "place": {"start": 0, "size": 1}}, id="a field is of another kind"),
        pytest.param("1g", id="no object at all"),
        pytest.param(None, id="null"),
    ],
)  # fmt: skip
def test_data_of_another_shape_is_refused(data):
    with pytest.raises(msgspec.ValidationError):
        INSTANCE.decode(data)
