"""``make gpu-check``: what the library promises, on this machine's GPU (or on a simulated one)."""
