"""Decisions as kube-scheduler reads them: which node, or why not each of thousands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import compress

import numpy as np
from numpy.typing import NDArray

from hami.domain.reasons import Rejected
from hami.policy.filter import Refused
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


def _texts(refused: Refused, texts: Sequence[str], chosen: NDArray[np.bool_]) -> dict[str, str]:
    if not chosen.any():
        return {}
    names = refused.candidates if chosen.all() else compress(refused.candidates, chosen.tolist())
    return dict(zip(names, map(texts.__getitem__, refused.answer[chosen].tolist()), strict=True))


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
