"""Which of several connected devices belong together, by their pair scores.

``scores[a][b]`` says how well a and b are linked (higher is closer). ``best_connected`` reads only
``a < b``, so the matrix need not be symmetric. Both functions depend only on their arguments: among
equals, the combination that comes first wins.
"""

from __future__ import annotations

from collections.abc import Sequence

Scores = Sequence[Sequence[int]]

EXACT_UP_TO = 16
"""Above this many candidates the search for the best combination is greedy."""


def least_connected(scores: Scores) -> int:
    """The index with the weakest links to all others: the others miss that device least."""
    sums = [sum(row) - row[i] for i, row in enumerate(scores)]
    return sums.index(min(sums))


def best_connected(scores: Scores, count: int) -> tuple[int, ...]:
    """The indexes of the ``count`` devices with the highest sum of pair scores, ascending.

    Raises:
        ValueError: fewer than ``count`` candidates, or ``count`` is negative.
    """
    size = len(scores)
    if not 0 <= count <= size:
        raise ValueError(f"cannot take {count} of {size} devices")
    if count == size:
        return tuple(range(size))
    return _greedy(scores, count) if size > EXACT_UP_TO else _Search(scores, count).best()


class _Search:
    """Branch and bound over ascending combinations.

    A branch dies when even its best completion does not exceed the best so far, so among equal
    sums the lexicographically first combination stands.
    """

    def __init__(self, scores: Scores, count: int) -> None:
        self._scores = scores
        self._count = count
        size = len(scores)
        self._best_sum: int | None = None
        self._best: tuple[int, ...] = ()
        # The strongest link inside each suffix bounds what pairs not yet chosen can add.
        self._strongest = [0] * (size + 1)
        for start in range(size - 1, -1, -1):
            links = [scores[start][b] for b in range(start + 1, size)]
            tail = self._strongest[start + 1] if start + 2 < size else None
            options = links if tail is None else [*links, tail]
            self._strongest[start] = max(options, default=0)

    def best(self) -> tuple[int, ...]:
        self._extend((), 0, 0, [0] * len(self._scores))
        return self._best

    def _extend(self, chosen: tuple[int, ...], start: int, total: int, gain: list[int]) -> None:
        missing = self._count - len(chosen)
        if missing == 0:
            if self._best_sum is None or total > self._best_sum:
                self._best_sum, self._best = total, chosen
            return
        size = len(self._scores)
        for index in range(start, size - missing + 1):
            if self._best_sum is not None:
                gains = sorted(gain[index:], reverse=True)[:missing]
                pairs = missing * (missing - 1) // 2
                if total + sum(gains) + pairs * self._strongest[index] <= self._best_sum:
                    return
            row = self._scores[index]
            grown = [g + row[b] if b > index else g for b, g in enumerate(gain)]
            self._extend((*chosen, index), index + 1, total + gain[index], grown)


def _greedy(scores: Scores, count: int) -> tuple[int, ...]:
    """From every start, add the best linked device again and again; keep the best result."""
    size = len(scores)

    def link(a: int, b: int) -> int:
        return scores[a][b] if a < b else scores[b][a]

    def grown_from(start: int) -> tuple[int, tuple[int, ...]]:
        chosen, total = [start], 0
        gain = {b: link(start, b) for b in range(size) if b != start}
        while len(chosen) < count:
            best = max(gain, key=lambda b: (gain[b], -b))
            total += gain.pop(best)
            chosen.append(best)
            for b in gain:
                gain[b] += link(best, b)
        return total, tuple(sorted(chosen))

    if count == 0:
        return ()
    results = [grown_from(start) for start in range(size)]
    top = max(total for total, _ in results)
    return min(chosen for total, chosen in results if total == top)
