"""Decisions as kube-scheduler reads them: which node, or why not each of thousands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from hami.domain.reasons import Rejected
from hami.policy.filter import Refused
from hami.policy.names import NameBlock
from hami.wire.extender import ExtenderFilterResult


def text_of(answer: Rejected) -> str:
    """HAMi's reason, and after it whatever there is to explain."""
    return ": ".join(filter(None, (str(answer), "; ".join(answer.details))))


def refusal(refused: Refused) -> ExtenderFilterResult:
    """Every candidate with its reason; apart those where no preemption can help."""
    texts = [text_of(answer) for answer in refused.answers]
    hopeless = np.array([answer.unresolvable for answer in refused.answers], np.bool_)
    unresolvable = hopeless[refused.answer]
    return ExtenderFilterResult(
        failed_nodes=_texts(refused, texts, ~unresolvable),
        failed_and_unresolvable_nodes=_texts(refused, texts, unresolvable),
    )


def _texts(refused: Refused, texts: Sequence[str], chosen: NDArray[np.bool_]) -> Mapping[str, str]:
    if not chosen.any():
        return {}
    names, answer = refused.candidates, refused.answer
    if chosen.all():
        if isinstance(names, NameBlock):
            return NodeTexts(names, texts, answer)
        return dict(zip(names, map(texts.__getitem__, answer.tolist()), strict=True))
    some = compress(names, chosen.tolist())
    return dict(zip(some, map(texts.__getitem__, answer[chosen].tolist()), strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class NodeTexts(Mapping[str, str]):
    """``texts[text[i]]`` for the i-th of many names, which go from JSON into JSON as they are."""

    names: NameBlock
    texts: Sequence[str]
    text: NDArray[np.int64]

    def __getitem__(self, name: str) -> str:
        try:
            index = self.names.index(name)
        except ValueError:
            raise KeyError(name) from None
        return self.texts[int(self.text[index])]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def json(self) -> msgspec.Raw:
        used = np.flatnonzero(np.bincount(self.text, minlength=len(self.texts)))
        place = np.zeros(len(self.texts), np.int64)
        place[used] = np.arange(len(used))
        values = [msgspec.json.encode(self.texts[index]) for index in used.tolist()]
        return msgspec.Raw(self.names.as_object(values, place[self.text]))


def encoded(result: ExtenderFilterResult) -> bytes:
    """The answer as JSON."""
    return msgspec.json.encode(result, enc_hook=_raw)


def _raw(value: Any) -> msgspec.Raw:
    if isinstance(value, NodeTexts):
        return value.json()
    raise NotImplementedError(f"{type(value).__name__} cannot be written as JSON")


def unfit_everywhere(candidates: Sequence[str], text: str) -> ExtenderFilterResult:
    """The pod itself cannot be understood: no node, and no eviction, helps."""
    return ExtenderFilterResult(failed_and_unresolvable_nodes=dict.fromkeys(candidates, text))


def words_of(refused: Refused) -> Mapping[str, int]:
    """How many nodes were refused for each reason's word."""
    words: Counter[str] = Counter()
    for answer, nodes in _with_counts(refused):
        for reason, _ in answer.counts:
            words[reason.word] += nodes
    return words


def summary(refused: Refused) -> str:
    """kube-scheduler's way of saying it: how many nodes said what; then each detail once."""
    said: Counter[str] = Counter()
    details: dict[str, None] = {}
    for answer, nodes in _with_counts(refused):
        said[str(answer)] += nodes
        details |= dict.fromkeys(answer.details)
    counts = sorted(f"{nodes} {text}" for text, nodes in said.items())
    nodes = len(refused.candidates)
    head = f"0/{nodes} nodes fit: {', '.join(counts)}." if counts else "no node was offered."
    return " ".join([head, *details])


def details_of(refused: Refused) -> Sequence[str]:
    """What there is to explain: which quota, used, asked and limit; each once."""
    return list(dict.fromkeys(t for answer, _ in _with_counts(refused) for t in answer.details))


def _with_counts(refused: Refused) -> list[tuple[Rejected, int]]:
    """The answers that some candidate has."""
    counts = np.bincount(refused.answer, minlength=len(refused.answers)).tolist()
    return [(a, n) for a, n in zip(refused.answers, counts, strict=True) if n]
