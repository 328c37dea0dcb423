"""The node monitor: what runs on a node, measured, fed back and shown.

``table`` is what one round of measuring found, as values that do no I/O. Everything else here reads
it or makes it.
Not here: making, changing and removing slices (``hami.node``). The monitor may do I/O on its node;
agent and monitor start, run and stop without each other.
"""
