"""While a container runs, the agent looks whether it really has its slice.

``mount_check`` looks at each container after its start, and again and again. ``slice_seen`` judges
what one sees and stops it where it must. May read ``/proc`` and kill processes; changes no slice.
What a slice should be is in ``slice``, and whose processes are whose in ``hami.slices``.
"""
