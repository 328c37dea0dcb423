"""Elastic quota: what is guaranteed, borrowed and taken back. No I/O, no clock.

Inside: quota objects and the groups above them (``objects``), what pods take of them (``units``,
``vector``, ``model_keys``), the book that admits pods and knows who is over quota (``book``), and
the plans that give a guarantee back (``plans``). ``model`` has the values that all of them speak
of.
"""

from hami.policy.quota.elastic.book.book import CAPACITY_LABEL, Capacity, ElasticBook, Pool, Shares
from hami.policy.quota.elastic.model import (
    GPU_MEMORY,
    MIB_PER_GB,
    Amounts,
    Claim,
    ElasticRefusal,
    Leaf,
    LeafKey,
    Member,
    Options,
    TreeNode,
)
from hami.policy.quota.elastic.objects.arrangement import ElasticProblem
from hami.policy.quota.elastic.units import Units
from hami.policy.quota.elastic.vector import pod_vector

__all__ = [
    "CAPACITY_LABEL",
    "GPU_MEMORY",
    "MIB_PER_GB",
    "Amounts",
    "Capacity",
    "Claim",
    "ElasticBook",
    "ElasticProblem",
    "ElasticRefusal",
    "Leaf",
    "LeafKey",
    "Member",
    "Options",
    "Pool",
    "Shares",
    "TreeNode",
    "Units",
    "pod_vector",
]
