"""What a pod asks for, what it may not ask for, and what it uses once it is bound.

``pod_request`` reads the request. ``admission`` and ``ephemeral`` decide about a pod that is
created, and about a debug container that is added. ``escapes`` finds what would let a pod out of
its slices. ``accounting`` says what a bound pod uses. A node's agent needs these modules too, so
they import neither ``tables`` nor ``filter``. The webhook that carries the answers is
``hami.scheduler.web``.
"""
