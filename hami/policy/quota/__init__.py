"""Quota: how much of the vendors' resources the pods of a namespace may take together.

Inside: ResourceQuota objects as constraints (``constraint``), which pods they count (``scopes``),
and the ledger that charges pods against them (``ledger``); elastic quotas (``elastic``) and the
ledger that has both (``elastic_ledger``). Usage is what a pod was charged, after percentages and
rounding; everything else derives from the ledger. No I/O, no clock.
"""

from hami.policy.quota.constraint import Constraint, QuotaProblem, QuotaRefusal, read_quota
from hami.policy.quota.elastic_ledger import ElasticLedger
from hami.policy.quota.ledger import RULES, PodGate, QuotaLedger, Refusal

__all__ = [
    "RULES",
    "Constraint",
    "ElasticLedger",
    "PodGate",
    "QuotaLedger",
    "QuotaProblem",
    "QuotaRefusal",
    "Refusal",
    "read_quota",
]
