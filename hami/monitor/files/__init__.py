"""The slices of this node as the monitor holds them: read at every tick, written with what it saw.

``slices_on_disk`` follows which there are, ``held_slice`` has one with its files open, and
``observed_words`` writes the monitor's words into a limits page. What is here blocks. It makes,
changes and removes no file: that is the agent's (``hami.node``).
"""
