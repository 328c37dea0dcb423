"""Work that blocks, beside a loop: each call within its time.

``threads`` runs vendors' hooks and the disk's work, and joins a late call instead of repeating it;
``daemon_threads`` let the process end although one hangs. Knows nothing of what it runs.
"""
