"""The agent learns here what it has to serve, and on what node.

``config`` holds every setting, and ``source`` finds their values. ``node_config`` reads the entries
for single nodes, ``vendor_options`` the vendor's flags and variables. ``node_facts`` knows the
node's versions and labels, and remembers them on disk; by the versions ``identity`` chooses how
pods are found. ``served_vendor`` picks the vendor's plugin. May read files and ask the API server;
imports nothing of the agent but ``disk``. What all commands share is in ``hami.settings``.
"""
