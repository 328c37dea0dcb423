"""As much of Prometheus' query language as HAMi's dashboard is written in.

Selectors with ``=~``, ``*`` and ``/`` of numbers and vectors, ``and on (...)``, ``count``, ``sum``
with and without ``by``, and ``topk``. Vectors match one to one, on all labels where none are named.
(https://prometheus.io/docs/prometheus/latest/querying/operators/)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

Labels = frozenset[tuple[str, str]]
Vector = Mapping[Labels, float]


@dataclass(frozen=True)
class Sample:
    name: str
    labels: Labels
    value: float


TOKEN = re.compile(r'\s*([A-Za-z_:][\w:]*|\d+(?:\.\d+)?|"[^"]*"|=~|[(){},*/])')


def evaluate(query: str, samples: Iterable[Sample]) -> Vector | float:
    """The answer of an instant query over one moment's samples."""
    tokens = TOKEN.findall(query)
    assert "".join(tokens) == re.sub(r"\s", "", query), f"a word that is not known in {query}"
    reader = _Reader(tokens, list(samples))
    answer = reader.joined()
    assert not reader.tokens, f"{reader.tokens} is left of {query}"
    return answer


class _Reader:
    def __init__(self, tokens: list[str], samples: list[Sample]) -> None:
        self.tokens = tokens
        self.samples = samples

    def take(self, *wanted: str) -> str:
        token = self.tokens.pop(0)
        assert not wanted or token in wanted, f"{token} instead of {wanted}"
        return token

    def peek(self) -> str:
        return self.tokens[0] if self.tokens else ""

    def joined(self) -> Vector | float:
        left = self.product()
        while self.peek() == "and":
            self.take("and")
            self.take("on")
            names = self.names()
            right = self.product()
            assert isinstance(left, Mapping)
            assert isinstance(right, Mapping)
            there = {chosen(labels, names) for labels in right}
            left = {labels: v for labels, v in left.items() if chosen(labels, names) in there}
        return left

    def product(self) -> Vector | float:
        left = self.term()
        while self.peek() in ("*", "/"):
            operation = (lambda a, b: a * b) if self.take() == "*" else (lambda a, b: a / b)
            left = applied(operation, left, self.term())
        return left

    def term(self) -> Vector | float:
        token = self.take()
        if token == "(":
            inside = self.joined()
            self.take(")")
            return inside
        if token[0].isdigit():
            return float(token)
        if token in ("sum", "count"):
            return self.aggregate(token)
        if token == "topk":
            self.take("(")
            number = int(self.take())
            self.take(",")
            vector = self.joined()
            self.take(")")
            assert isinstance(vector, Mapping)
            return dict(sorted(vector.items(), key=lambda item: -item[1])[:number])
        return self.selected(token)

    def aggregate(self, how: str) -> Vector:
        names = self.names() if self.peek() == "by" and self.take() else frozenset()
        self.take("(")
        vector = self.joined()
        self.take(")")
        assert isinstance(vector, Mapping)
        found: dict[Labels, float] = {}
        for labels, value in vector.items():
            key = chosen(labels, names)
            found[key] = found.get(key, 0) + (value if how == "sum" else 1)
        return found

    def names(self) -> frozenset[str]:
        self.take("(")
        found = {self.take()}
        while self.take(",", ")") == ",":
            found.add(self.take())
        return frozenset(found)

    def selected(self, name: str) -> Vector:
        matchers: list[tuple[str, str]] = []
        if self.peek() == "{":
            self.take("{")
            label = self.take()
            self.take("=~")
            matchers.append((label, self.take().strip('"')))
            self.take("}")
        return {
            sample.labels: sample.value
            for sample in self.samples
            if sample.name == name
            and all(re.fullmatch(p, dict(sample.labels).get(label, "")) for label, p in matchers)
        }


def chosen(labels: Labels, names: frozenset[str]) -> Labels:
    return frozenset((name, value) for name, value in labels if name in names)


def applied(
    operation: Callable[[float, float], float], left: Vector | float, right: Vector | float
) -> Vector | float:
    if isinstance(left, Mapping):
        if isinstance(right, Mapping):
            return {k: operation(v, right[k]) for k, v in left.items() if k in right}
        return {k: operation(v, right) for k, v in left.items()}
    if isinstance(right, Mapping):
        return {k: operation(left, v) for k, v in right.items()}
    return operation(left, right)
