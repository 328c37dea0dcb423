"""NVML in the place of a driver, for tests of one function in this process: it answers from a file.

What a whole agent runs on is the driver of ``shim/simgpu``; ``tests/shim/nvml`` holds the two to the
same answers.
"""
