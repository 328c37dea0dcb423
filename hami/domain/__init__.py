"""Values and their arithmetic: devices, requests, grants, allocations, quantities, reasons.

Everything here is immutable and in the core's own units. Not here: bytes on the wire
(``hami.wire``), decisions (``hami.policy``). No I/O, no clock, no environment, no logging.
"""
