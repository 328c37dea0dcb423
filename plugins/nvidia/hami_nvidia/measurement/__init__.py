"""What GPUs, their processes and MIG instances use: the answer to ``hami_measure``.

``measuring`` asks NVML and remembers how far it has read each GPU's samples. ``sampled`` makes one
figure of several samples, without I/O. Whose a process is, the monitor finds out
(``hami.monitor``).
"""
