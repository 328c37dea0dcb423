"""Asks the vendors what is in use, and holds the newest answer.

``vendor_measuring`` asks one vendor at each tick: for its devices now and then, for what is used
every time. A hook that hangs stops nobody else: it runs in a thread and within its time. Not here:
whose the processes of an answer are (``processes``), and what follows (``tick``).
"""
