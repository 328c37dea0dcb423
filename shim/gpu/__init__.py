"""``make gpu-check``: checks the library's promises on this machine's GPU, or a simulated one."""
