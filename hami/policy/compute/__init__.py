"""Who may use how much of one device's time until the next tick of the monitor.

``demand`` judges what each slice wants, from what was seen of it since the last tick; ``shares``
divides the device between those that want it. Not here: reading figures and writing words
(``hami.monitor``), holding programs to their share (``shim/lib/compute``).
"""
