"""The node agent makes the scheduler's grants real: one process per node and vendor.

``agent`` builds every part and runs it. ``settings`` says what it has to serve. ``kubelet`` hears
kubelet's calls; ``start`` answers them, and ``compat`` answers them by HAMi's node lock. ``slice``
makes of a ``pod``'s grants a slice: of what ``device`` knows, on ``disk``. ``running`` looks
whether containers have theirs, and ``exposition`` says how the agent itself does. All of it may do
I/O; what blocks runs in threads.
Not here: the client of the API server (``hami.kube``), and the hardware (the vendor's plugin).
"""
