"""Names found at once are the names found one by one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hami.policy.names import NameIndex

names = st.text(max_size=4)


@given(st.dictionaries(names, st.integers(0, 2**40)), st.lists(names))
def test_the_index_finds_what_the_mapping_holds(numbers, asked):
    assert NameIndex(numbers).find(asked).tolist() == [numbers.get(name, -1) for name in asked]


def test_tens_of_thousands_of_names_all_find_their_place():
    numbers = {f"node-{number}": number for number in range(30_000)}
    assert NameIndex(numbers).find([*numbers, "ghost"]).tolist() == [*range(30_000), -1]
