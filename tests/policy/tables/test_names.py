"""Names found at once are the names found one by one, and a block of names is a list of them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hami.policy.tables.node_names import LONGEST, NameBlock, NameIndex

names = st.text(max_size=4)
plain = st.text(
    st.characters(codec="ascii", min_codepoint=32, max_codepoint=126, exclude_characters='"\\'),
    max_size=20,
)


def compact(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


# Looking up.


@given(st.dictionaries(names, st.integers(0, 2**40)), st.lists(names))
def test_the_index_finds_what_the_mapping_holds(numbers, asked):
    assert NameIndex(numbers).find(asked).tolist() == [numbers.get(name, -1) for name in asked]


@given(st.dictionaries(plain, st.integers(0, 2**40)), st.lists(plain))
def test_the_index_finds_the_names_of_a_block_alike(numbers, asked):
    block = NameBlock.read(compact(asked))
    assert block is not None
    assert NameIndex(numbers).find(block).tolist() == [numbers.get(name, -1) for name in asked]


def test_tens_of_thousands_of_names_all_find_their_place():
    numbers = {f"node-{number}": number for number in range(30_000)}
    assert NameIndex(numbers).find([*numbers, "ghost"]).tolist() == [*range(30_000), -1]


@pytest.mark.parametrize(
    ("known", "asked"),
    [
        pytest.param(["node-1"], ["node-1 and more than it", "node-"], id="longer, shorter"),
        pytest.param(["a" * 8], ["a" * 16, "a" * 7], id="whole words"),
        pytest.param(["a" * LONGEST], ["a" * LONGEST, "a" * (LONGEST + 1)], id="the longest"),
        pytest.param(["a" * 300, "b"], ["a" * 300, "b", "a" * 299], id="too long for a block"),
        pytest.param(["Käse", "b"], ["Käse", "b", "K\u00e4s"], id="not ASCII"),
        pytest.param(['q"', "b"], ['q"', "b", "q"], id="a quote"),
        pytest.param([], ["a"], id="nothing known"),
        pytest.param(["a"], [], id="nothing asked"),
    ],
)
def test_no_name_is_taken_for_another(known, asked):
    numbers = {name: number for number, name in enumerate(known)}
    assert NameIndex(numbers).find(asked).tolist() == [numbers.get(name, -1) for name in asked]


# A block is a list of names.


@given(st.lists(plain))
def test_a_block_is_the_list_it_was_read_from(asked):
    block = NameBlock.read(compact(asked))
    assert block == asked
    assert (list(block), len(block), [block[i] for i in range(len(block))]) == (
        asked,
        len(asked),
        asked,
    )
    assert block[1:] == asked[1:]
    assert all(name in block for name in asked)


@pytest.mark.parametrize(
    "array",
    [
        pytest.param(b'["a", "b"]', id="a space between"),
        pytest.param(b'[ "a"]', id="a space before"),
        pytest.param(b'["a"] ', id="a space behind"),
        pytest.param(b'["a",\n"b"]', id="a line break"),
        pytest.param(b'["\\u0061"]', id="an escape"),
        pytest.param(b'["a","\\""]', id="an escaped quote"),
        pytest.param('["ä"]'.encode(), id="not ASCII"),
        pytest.param(b'["a",1,"b"]', id="a number between"),
        pytest.param(b'["a",1]', id="a number at the end"),
        pytest.param(b'[["a"]]', id="a list in it"),
        pytest.param(b'["a":"b"]', id="no comma"),
        pytest.param(b'["a"', id="no end"),
        pytest.param(b"[1]", id="no text"),
        pytest.param(b"null", id="null"),
        pytest.param(b"", id="nothing"),
        pytest.param(b'["' + b"a" * (LONGEST + 1) + b'"]', id="too long"),
    ],
)
def test_what_is_written_in_another_way_is_no_block(array):
    assert NameBlock.read(array) is None


# Into JSON, and compared without regard to order.


written = st.lists(st.sampled_from(['"', ",", '","', "[", "]", "a", " ", "\\", "\x1f", "\x7f", "é", "a" * LONGEST]), max_size=8)  # fmt: skip


@given(written.map("".join).map(lambda text: f'["{text}"]'.encode()))
def test_few_names_are_read_as_many_are(array):
    few, many = NameBlock.read(array), NameBlock._read_many(array)
    assert (few is None) is (many is None)
    if few is not None and many is not None:
        assert (len(few), list(few), few[-1]) == (len(many), list(many), many[-1])
        assert few.words(few.width).tolist() == many.words(many.width).tolist()


@given(st.lists(st.tuples(plain, st.integers(0, 2)), unique_by=lambda pair: pair[0]))
def test_a_block_becomes_an_object_with_its_names_as_keys(pairs):
    block = NameBlock.read(compact([name for name, _ in pairs]))
    texts = ['zero "quoted"', "one", "two"]
    value = np.array([number for _, number in pairs], np.int64)
    made = json.loads(block.as_object([compact(text) for text in texts], value))
    assert made == {name: texts[number] for name, number in pairs}


@given(st.lists(plain, unique=True).flatmap(lambda n: st.tuples(st.just(n), st.permutations(n))))
def test_the_same_names_in_any_order_have_the_same_fingerprint(orders):
    one, other = (NameBlock.read(compact(order)) for order in orders)
    assert one.fingerprint() == other.fingerprint()


@given(st.sets(plain), st.sets(plain))
def test_other_names_have_another_fingerprint(one, other):
    blocks = [NameBlock.read(compact(sorted(some))) for some in (one, other)]
    assert (blocks[0].fingerprint() == blocks[1].fingerprint()) == (one == other)
