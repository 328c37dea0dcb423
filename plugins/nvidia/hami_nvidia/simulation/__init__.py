"""GPUs that are not there: NVML answered from a file, for tests, CI and demonstrations.

``nvml`` answers ``nvml.interface`` without a driver. ``spec`` reads the file that describes the
GPUs, and ``state`` keeps what changes about them. A node with GPUs uses nothing of this.
"""
