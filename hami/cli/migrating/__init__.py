"""``hami chart convert`` and ``hami migrate check``: what is read, and how the answer is shown.

``hami.migration`` decides. May do I/O: ``converting`` reads and writes files, ``cluster`` asks the
API server, and changes nothing there.
"""
