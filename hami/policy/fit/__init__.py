"""Which devices of one node a pod gets, and in which order devices and nodes are tried.

``exact`` walks a node's devices and asks the vendor what each would charge; it also fits all
containers of a pod. ``rank`` has the policies and scores, ``selection`` the annotations that allow
or forbid a device. ``topology`` finds connected devices for plugins.
Many nodes at once are scanned in ``tables``; the node is chosen in ``filter``.
These modules look at one node and keep no state.
"""
