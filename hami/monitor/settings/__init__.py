"""The monitor's settings: ``config`` has each with its type and default, and ``source`` their
values and what of them the vendors' hooks are given. May read files; what the node agent is told as
well is in ``hami.settings.node_process``.
"""
