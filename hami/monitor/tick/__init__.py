"""One tick: what the vendors measured becomes words in the slices' pages, and a table of the node.

``ticking`` runs it every half second. ``round`` is one of them: ``attribution`` finds whose the
measured processes are, ``dividing`` what each slice may have of a device's time, ``showing`` writes
it all down as a table, and ``telling`` says on pods what their owners should know. Who measures is
in ``measuring``, the files in ``files``; what a share is, is decided in ``hami.policy.compute``.
"""
