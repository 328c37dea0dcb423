"""What this node has: its devices, their links, their files, and what a CUDA context costs.

``discovery`` makes the list of devices that the node publishes. ``links`` scores how well GPUs are
linked. ``places`` finds the index and the device files of a GPU or MIG device. ``context_memory``
computes what a CUDA context takes of a GPU.
Whether a device is well is asked in ``health``. These modules read NVML and ``/sys`` and ``/proc``;
they change nothing.
"""
