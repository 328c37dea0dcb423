"""The way in and out: HTTP requests to verbs, answers and watches to bytes.

``front`` takes a request, ``paths`` and ``bodies`` read it, ``verbs`` answer it, ``encoding``
writes the answer, ``watching`` streams; ``pod_proxy`` asks a pod's own server; ``faults`` go wrong
on demand and ``calls`` counts. Not here: what a write does (``writes``). May do I/O: it answers
requests, asks pods' servers and makes certificates.
"""
