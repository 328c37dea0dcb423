"""What the scheduler decides about NVIDIA's devices, and the texts it exchanges with nodes.

``profile`` is the vendor as data. ``admission`` changes a container when its pod is created.
``node_annotations`` and ``mig_annotation`` read and write the texts on nodes and pods.
``mig_placement`` chooses the MIG instance of a slice, ``topology`` the best linked devices.
The hooks that call these modules are in ``scheduler_side``; instances are made in ``mig``.
Everything here is pure: no I/O, no clock, no NVML. It may import ``settings.config`` alone.
"""
