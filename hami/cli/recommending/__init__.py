"""``hami recommend``: the monitors are asked, what they say is judged by workload, and shown.

``hami.policy.recommendation`` has the rules. May do I/O: ``monitors`` asks, ``applying`` resizes.
"""
