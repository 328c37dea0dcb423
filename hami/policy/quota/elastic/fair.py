"""How unused guarantees are shared out among quotas, in whole numbers.

One function for three ways. ``floor``: everyone's share rounded down, as in nos. ``hamilton``:
the largest remainders get what rounding left, so that nothing is lost. ``waterfill``: the same,
but nobody gets more than it wants, and what it leaves goes to the others.
"""

from __future__ import annotations

from collections.abc import Sequence


def floor_shares(total: int, weights: Sequence[int], caps: Sequence[int | None]) -> list[int]:
    """``total * weight // sum of weights`` each, at most its cap (None: no cap).

    Whole numbers throughout: with floats 29 of 100 shared by 100 would be 28.
    """
    whole = sum(weights)
    if whole <= 0:
        return [0] * len(weights)
    return [_capped(total * w // whole, cap) for w, cap in zip(weights, caps, strict=True)]


def filled_shares(total: int, weights: Sequence[int], caps: Sequence[int | None]) -> list[int]:
    """All of ``total`` by weight, as far as the caps allow; equal remainders go to the first."""
    shares = [0] * len(weights)
    open_ = [i for i, weight in enumerate(weights) if weight > 0]
    while True:
        whole = sum(weights[i] for i in open_)
        full = {i: cap for i in open_ if _reaches(cap := caps[i], total, weights[i], whole)}
        if not full:
            break
        for i, cap in full.items():
            shares[i] = cap or 0
            total -= shares[i]
        open_ = [i for i in open_ if i not in full]
    for i in open_:
        shares[i] = total * weights[i] // whole
    rest = total - sum(shares[i] for i in open_)
    by_remainder = sorted(open_, key=lambda i: (-(total * weights[i] % whole), i))
    for i in by_remainder[:rest]:
        shares[i] += 1
    return shares


def _reaches(cap: int | None, total: int, weight: int, whole: int) -> bool:
    """Its exact share would be its cap or more."""
    return cap is not None and total * weight >= cap * whole


def _capped(share: int, cap: int | None) -> int:
    return share if cap is None else min(share, cap)
