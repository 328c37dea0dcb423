"""The agent and kubelet speak here: the device plugin API, its sockets, and kubelet's own record.

``served_resources`` has a ``server`` for each resource, which registers it and keeps it registered.
``plugin_calls`` decodes what kubelet asks, ``device_list`` streams the ``tokens`` that kubelet
counts, and ``checkpoint`` reads who got which. ``static_calls`` answers for whole devices.
May do I/O with kubelet's sockets and files, and watches the node's status (``displacement``). Knows
no slice: the answers for those are in ``start`` and ``compat``. Imports ``device`` alone.
"""
