"""What a container gets with its slice: devices, library, limits; and what is removed afterwards.

``enforce`` decides. ``kubelet_identity`` answers with a CDI spec and a limits page;
``lock_identity`` answers as HAMi's device plugin does. ``device_list`` and ``gpudirect`` name
devices and files, ``node_cdi`` reads the node's CDI spec, ``agent_cdi`` writes ours. ``library``
puts ``libvgpu.so`` onto the node; ``limits`` and ``context_reserves`` say what it shall enforce.
``record`` remembers what a slice got. These modules write files on the node, through ``files``.
Which devices a slice has was decided by the scheduler; MIG instances are made in ``mig``.
"""
