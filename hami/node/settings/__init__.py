"""The agent learns here what it has to serve, and on what node.

``config`` holds its settings, and ``source`` finds their values. ``node_facts`` knows the node's
versions and labels, and remembers them on disk; by the versions ``identity`` chooses how pods are
found. ``served_vendor`` picks the vendor's plugin. May read files and ask the API server; imports
nothing of the agent but ``disk``. What all commands share, and what the monitor is told as well, is
in ``hami.settings``.
"""
