"""What a container gets with its slice: devices, library, limits; and what is removed afterwards.

``enforce`` decides, answers with a CDI spec and the limits page's settings, and remembers what it
gave; ``cleanup`` undoes it. ``device_files`` names the node's device files, ``node_cdi`` reads the
node's CDI spec, ``agent_cdi`` writes ours. ``library`` puts ``libvgpu.so`` onto the node, and
``limits`` says what it shall enforce. These modules write files on the node, through ``files``.
Which devices a slice has was decided by the scheduler; MIG instances are made in ``mig``; how
HAMi's plugin answers is in ``compat``.
"""
