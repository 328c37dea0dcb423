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
from hami.policy.filter.decision import Refused
from hami.policy.quota import RULES
from hami.policy.tables.node_names import NameBlock
from hami.wire.extender import ExtenderFilterResult

EXAMPLES = 3
"""Nodes named beside each reason."""

MOST_TEXTS = 20
"""Different texts that are kept of a refusal; nodes with others are counted together."""


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


class NodeTexts(Mapping[str, str]):
    """``texts[text[i]]`` for the i-th of many names, which go from JSON into JSON as they are."""

    def __init__(self, names: NameBlock, texts: Sequence[str], text: NDArray[np.int64]) -> None:
        self._names = names
        self._texts = texts
        self._text = text

    def __getitem__(self, name: str) -> str:
        try:
            index = self._names.index(name)
        except ValueError:
            raise KeyError(name) from None
        return self._texts[int(self._text[index])]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def json(self) -> msgspec.Raw:
        used = np.flatnonzero(np.bincount(self._text, minlength=len(self._texts)))
        place = np.zeros(len(self._texts), np.int64)
        place[used] = np.arange(len(used))
        values = [msgspec.json.encode(self._texts[index]) for index in used.tolist()]
        return msgspec.Raw(self._names.as_object(values, place[self._text]))


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
    return explained(refused).message


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesSaid:
    """So many nodes refused for the same reason; ``examples`` are the first few."""

    reason: str
    nodes: int
    examples: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """What is kept of a refusal for people: short, however many nodes there were.

    ``reasons``: each text once, most nodes first; ``details`` what there is to explain.
    """

    message: str
    reasons: tuple[NodesSaid, ...] = ()
    details: tuple[str, ...] = ()


def explained(refused: Refused) -> Explained:
    """The message is kube-scheduler's way of saying it; then each detail once."""
    reasons = _reasons(refused)
    details = tuple(details_of(refused)[:MOST_TEXTS])
    counts = sorted(f"{said.nodes} {said.reason}" for said in reasons)
    nodes = len(refused.candidates)
    head = f"0/{nodes} nodes fit: {', '.join(counts)}." if counts else "no node was offered."
    return Explained(message=" ".join([head, *details]), reasons=reasons, details=details)


def _reasons(refused: Refused) -> tuple[NodesSaid, ...]:
    counts = np.bincount(refused.answer, minlength=len(refused.answers))
    nodes: Counter[str] = Counter()
    alike: dict[str, list[int]] = {}
    for place in np.flatnonzero(counts).tolist():
        text = str(refused.answers[place])
        nodes[text] += int(counts[place])
        alike.setdefault(text, []).append(place)
    most = sorted(alike, key=lambda text: (-nodes[text], text))
    said = [_said(refused, text, alike[text]) for text in most[:MOST_TEXTS]]
    if rest := most[MOST_TEXTS:]:
        places = [place for text in rest for place in alike[text]]
        said.append(_said(refused, "other reasons", places))
    return tuple(said)


def _said(refused: Refused, text: str, places: Sequence[int]) -> NodesSaid:
    meant = np.zeros(len(refused.answers), np.bool_)
    meant[places] = True
    found = np.flatnonzero(meant[refused.answer])
    examples = sorted(refused.candidates[index] for index in found[:EXAMPLES].tolist())
    return NodesSaid(reason=text, nodes=len(found), examples=tuple(examples))


def rule_of(refused: Refused) -> str | None:
    """The first of the quotas' rules that kept the pod out; None when it was no quota."""
    broken = {rule for answer, _ in _with_counts(refused) for rule in answer.rules}
    return next((rule for rule in RULES if rule in broken), None)


def details_of(refused: Refused) -> Sequence[str]:
    """What there is to explain: which quota, used, asked and limit; each once."""
    return list(dict.fromkeys(t for answer, _ in _with_counts(refused) for t in answer.details))


def _with_counts(refused: Refused) -> list[tuple[Rejected, int]]:
    """The answers that some candidate has."""
    counts = np.bincount(refused.answer, minlength=len(refused.answers)).tolist()
    return [(a, n) for a, n in zip(refused.answers, counts, strict=True) if n]
