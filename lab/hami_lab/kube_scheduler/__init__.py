"""A stand-in for kube-scheduler: its queue, its filters, the extender protocol as it speaks it.

A client of the API server like any other, over HTTP, so that it works against a real one too.
I/O is allowed. Not here: preemption, volumes, spreading, pod affinity, and scores beyond
"least allocated".
"""
