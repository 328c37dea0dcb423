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
    shares = [total * weight // whole for weight in weights]
    for i, cap in enumerate(caps):
        if cap is not None and cap < shares[i]:
            shares[i] = cap
    return shares


def filled_shares(total: int, weights: Sequence[int], caps: Sequence[int | None]) -> list[int]:
    """All of ``total`` by weight, as far as the caps allow; equal remainders go to the first."""
    shares = [0] * len(weights)
    open_ = [i for i, weight in enumerate(weights) if weight > 0]
    while True:
        whole = sum(weights[i] for i in open_)
        # Those whose exact share would be their cap or more.
        full = {
            i: cap
            for i in open_
            if (cap := caps[i]) is not None and total * weights[i] >= cap * whole
        }
        if not full:
            break
        for i, cap in full.items():
            shares[i] = cap
            total -= cap
        open_ = [i for i in open_ if i not in full]
    for i in open_:
        shares[i] = total * weights[i] // whole
    if rest := total - sum(shares[i] for i in open_):
        # The sort keeps equals in their order.
        by_remainder = sorted(open_, key=lambda i: -(total * weights[i] % whole))
        for i in by_remainder[:rest]:
            shares[i] += 1
    return shares
