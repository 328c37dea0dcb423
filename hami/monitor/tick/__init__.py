"""One tick: what vendors measured becomes words in the slices' pages, and a table of the node.

``ticking`` runs it every half second. ``node_round`` is one of them: ``attribution`` finds whose
the measured processes are, ``dividing`` what each slice may have of a device's time, ``showing``
writes it all down as a table, to which ``foreign`` adds slices of HAMi's library. ``pod_warnings``
says on pods what their owners should know. Who measures is in ``measuring``, the files in
``files``; what a share is, is decided in ``hami.policy.compute``.
"""
