"""Whose the processes are that the driver shows by their number.

``process`` reads what the kernel says of one, ``process_table`` remembers it for as long as the
process lives, and ``owners`` finds the slice of its container. Reads ``/proc`` and writes nothing;
what is here blocks.
"""
