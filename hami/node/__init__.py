"""The node agent: makes the scheduler's grants real, one process per node and vendor.

kubelet is reached over its device plugin API and its checkpoint, the cluster through ``hami.kube``,
the hardware through the vendor's plugin. Everything here may do I/O; what blocks runs in threads.
"""
