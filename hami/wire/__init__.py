"""Bytes and texts from outside turned into domain values, and back.

Inside: annotation keys (``keys``), the codecs of annotations (``codecs``), a pod's allocation as
annotations (``allocation``), kube-scheduler's extender protocol (``extender``), admission reviews
(``admission``) and the patches that answer them (``json_patch``). Not here: what a decoded value
means for a decision (``hami.policy``), vendor-only formats (the vendor's package). Tolerant in
what it reads, exact in what it writes; what cannot be read is a value and never an exception. No
I/O, no clock, no logging.
"""
