"""YAML and JSON as kubectl reads them, and one sentence for what cannot be read."""

from __future__ import annotations

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from hami.domain.errors import ConfigError
from hami.simulate.documents import read_documents


def values(text: str, file: str = "f.yaml"):
    return [document.value for document in read_documents(file, text)]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param("3000", 3000, id="a whole number"),
        pytest.param("-7", -7, id="a negative number"),
        pytest.param("0.5", 0.5, id="a fraction"),
        pytest.param("1e3", 1000.0, id="a number with an exponent, which PyYAML takes for text"),
        pytest.param("010", 8, id="an octal number, as YAML 1.1 has it"),
        pytest.param("0x1F", 31, id="a hexadecimal number"),
        pytest.param("-0b101", -5, id="a binary number"),
        pytest.param("0o17", 15, id="an octal number of YAML 1.2"),
        pytest.param("3k", "3k", id="a quantity stays text"),
        pytest.param("16Gi", "16Gi", id="a binary quantity stays text"),
        pytest.param("true", True, id="a boolean"),
        pytest.param("yes", True, id="an unquoted yes is a boolean too"),
        pytest.param("off", False, id="an unquoted off is a boolean too"),
        pytest.param('"true"', "true", id="a quoted boolean is text"),
        pytest.param("!!str 5", "5", id="a number tagged as text is text"),
        pytest.param("12:30", "12:30", id="a time of day is text, not minutes"),
        pytest.param("2026-01-31T12:00:00Z", "2026-01-31T12:00:00Z", id="a timestamp is text"),
        pytest.param("1_000", "1_000", id="underscores make no number"),
        pytest.param("1.2.3", "1.2.3", id="a version is text"),
        pytest.param("", None, id="nothing is null"),
        pytest.param("~", None, id="a tilde is null"),
        pytest.param("{a: 1, b: [x, y]}", {"a": 1, "b": ["x", "y"]}, id="flow style"),
        pytest.param("\n  - 1\n  - x: 2", [1, {"x": 2}], id="block style"),
        pytest.param("|\n  two\n  lines\n", "two\nlines\n", id="a block of text"),
    ],
)
def test_a_value_means(text, value):
    assert values(f"key: {text}") == [{"key": value}]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("8: a\ntrue: b", [{"8": "a", "true": "b"}], id="keys become text"),
        pytest.param("a: 1\n---\nb: 2", [{"a": 1}, {"b": 2}], id="several documents"),
        pytest.param("---\n---\n# nothing\n", [], id="empty documents are left out"),
        pytest.param("", [], id="an empty file has none"),
        pytest.param("a: &x [1]\nb: *x", [{"a": [1], "b": [1]}], id="an alias repeats its anchor"),
        pytest.param(
            "a: &x {p: 1, q: 2}\nb:\n  <<: *x\n  q: 3",
            [{"a": {"p": 1, "q": 2}, "b": {"p": 1, "q": 3}}],
            id="a merge gives way to what is written",
        ),
        pytest.param(
            "b:\n  <<: [{p: 1}, {p: 2, q: 3}]",
            [{"b": {"p": 1, "q": 3}}],
            id="of several merged mappings the first wins",
        ),
        pytest.param(
            '{"a": 1}\n{"b": "\\ud83d\\ude00"}', [{"a": 1}, {"b": "😀"}], id="JSON stream"
        ),
        pytest.param("\ufeff{a: 1}", [{"a": 1}], id="a byte order mark is ignored"),
    ],
)
def test_a_text_holds(text, expected):
    assert values(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("a: b: c", "f.yaml:1: this is not valid YAML: mapping values", id="broken"),
        pytest.param("a: 1\nb: [1,\n", "f.yaml:3: this is not valid YAML", id="cut off"),
        pytest.param("a: \x01", "f.yaml: this is not valid YAML: unacceptable", id="control byte"),
        pytest.param("a: 1\na: 2", "f.yaml:2: the key 'a' is there twice", id="a key twice"),
        pytest.param("? [a]\n: 1", "f.yaml:1: a key must be a text", id="a list as key"),
        pytest.param("a: .inf", "f.yaml:1: .inf is no number", id="infinity"),
        pytest.param("a: .nan", "f.yaml:1: .nan is no number", id="not a number"),
        pytest.param("a: " + "9" * 5000, "too long for a number", id="five thousand digits"),
        pytest.param("a: !!python/name:os.x y", "is not supported; leave it out", id="a tag"),
        pytest.param("a: *b", "no anchor &b before this alias", id="an alias of nothing"),
        pytest.param("&a [*a]", "no anchor &a before this alias", id="a list that holds itself"),
        pytest.param("<<: 3", "only a mapping can be merged", id="a number merged"),
        pytest.param("[" * 100_000, "more than 100 levels", id="deep brackets do not crash"),
        pytest.param("- " * 100_000, "more than 100 levels", id="deep dashes do not crash"),
        pytest.param('{"a":' * 100_000, "more than 100 levels", id="deep JSON does not crash"),
        pytest.param(
            '{"a":\n' + "[" * 500 + "]" * 500 + "}",
            "f.yaml:2: this nests more than 100 levels",
            id="JSON that the parser takes nests no deeper than YAML",
        ),
        pytest.param(
            '{"a": 1}\n{"b":\n"\\ud800"}', "f.yaml:3: ", id="half a character in JSON has a line"
        ),
        pytest.param('{"\\uDC00x": 1}', "holds half a character", id="half a character as a key"),
        pytest.param('a: 1\nb: "\\ud800"', "f.yaml:2: ", id="half a character in YAML"),
        pytest.param("a: 1\nb: \udc80", "f.yaml:2: the text holds \\udc80", id="half of one as is"),
        pytest.param('{"a": 1,\n"b": {\n"c": 1, "c": 2}}', "f.yaml:3: the key 'c'", id="its line"),
        pytest.param('{"x": "NaN",\n"a": -Infinity}', "f.yaml:2: -Inf", id="infinity in JSON"),
        pytest.param('{"a":\n' + "9" * 5000 + "}", "f.yaml:2: 9999", id="long digits in JSON"),
        pytest.param('{"a": 1, "a": 2}', "the key 'a' is there twice", id="a JSON key twice"),
        pytest.param('{"a": NaN}', "NaN is no number", id="JSON's not a number"),
    ],
)
def test_a_text_is_refused(text, message):
    with pytest.raises(ConfigError) as error:
        read_documents("f.yaml", text)
    assert message in str(error.value)


def test_aliases_that_repeat_without_end_are_refused():
    levels = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    with pytest.raises(ConfigError, match="aliases repeat too much"):
        read_documents("f.yaml", "\n".join(["a0: &a0 [x]", *levels]))


def test_a_json_file_names_the_line_of_the_error():
    with pytest.raises(ConfigError, match=r"^f\.json:2: this is not valid JSON"):
        read_documents("f.json", '{"a": 1,\n"b": }')


def test_a_json_key_may_be_in_several_objects_and_in_texts():
    text = '{"a": {"b": 1}, "c": [{"b": "\\\\ud800"}, {"b": "a\\": x"}]}\n\n{"a": "\\ud83d\\ude00"}'
    assert values(text)[1] == {"a": "😀"}
    assert [document.line for document in read_documents("f.json", text)] == [1, 3]


def test_a_document_knows_the_line_where_it_starts():
    documents = read_documents("f.yaml", "# comment\na: 1\n---\n\nb: 2\n")
    assert [document.place for document in documents] == ["f.yaml:2", "f.yaml:5"]


# PyYAML writes 1e3 without quotes, because it would read it as text.
_TEXTS = st.text(max_size=20).filter(lambda text: text[:1] not in tuple("+-.0123456789"))
_SCALARS = st.none() | st.booleans() | st.integers(-(2**60), 2**60) | _TEXTS
_VALUES = st.recursive(
    _SCALARS,
    lambda v: st.lists(v, max_size=4) | st.dictionaries(_TEXTS, v, max_size=4),
)
_OBJECTS = st.dictionaries(_TEXTS, _VALUES, min_size=1, max_size=4)


@given(_OBJECTS)
def test_what_pyyaml_writes_is_read_back(value):
    assert values(yaml.safe_dump(value, allow_unicode=False)) == [value]


@given(_OBJECTS)
def test_what_json_writes_is_read_back(value):
    assert values(json.dumps(value)) == [value]


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text):
    try:
        read_documents("f.yaml", text)
    except ConfigError as error:
        assert str(error).startswith("f.yaml")  # noqa: PT017 -- either outcome is right
