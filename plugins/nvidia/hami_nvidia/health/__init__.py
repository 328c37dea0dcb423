"""Whether the devices of this node are well.

``watch`` waits for the driver's errors and asks the GPUs. ``survey`` asks each GPU how it is now.
``condition`` decides, step by step and without I/O, whether a device is ill or has recovered.
``xids`` knows the driver's error numbers. These modules report what they find; the agent tells
kubelet and the scheduler (``hami.node``).
"""
