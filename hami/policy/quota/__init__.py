"""Quota: how much of the vendors' resources the pods of a namespace may take together.

Inside: the ledger, which has one entry per pod and asks each kind of quota that counts it
(``ledger``, ``entries``); ResourceQuotas (``resource_quotas``: each object as a ``constraint``,
which pods it counts in ``scopes``); elastic quotas (``elastic_quotas`` on ``elastic``). Usage is
what a pod was charged, after percentages and rounding; everything else derives from the ledger. No
I/O, no clock.
"""

from hami.policy.quota.constraint import Constraint, QuotaProblem, QuotaRefusal, read_quota
from hami.policy.quota.entries import RULES, PodGate, Refusal
from hami.policy.quota.ledger import QuotaLedger

__all__ = [
    "RULES",
    "Constraint",
    "PodGate",
    "QuotaLedger",
    "QuotaProblem",
    "QuotaRefusal",
    "Refusal",
    "read_quota",
]
