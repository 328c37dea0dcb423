"""Makes room by evicting pods where quota or priority says so.

``preemption`` decides for whom and when, ``evictions`` carries a plan out, ``budgets`` and
``eviction_rounds`` hold it back, ``backing`` says which guarantees the cluster cannot keep.
Which pods a plan names is pure, and in ``hami.policy.quota``.
"""
