"""MIG on the node: which instances there are, who has them, and which may be made.

``instances`` makes and destroys instances for slices. ``claims`` says which slice has which
instance, ``made_instances`` remembers what a pod's annotation must say of them. ``allowlist`` says
which profiles a GPU may offer. ``static_devices`` offers what an administrator has cut.
The scheduler's choice of an instance is ``schedule.mig_placement``; NVML's own terms of MIG are in
``nvml.driver_mig``. These modules change the GPU through ``nvml.interface`` and write no files.
"""
