"""What the product does, shown on the embedded cluster step by step, each step verified.

``steps`` is the scenario, ``run`` goes through it, ``picture`` is what a cluster holds as the
value that simulations print, ``workloads`` runs manifests of one's own. Not here: the terminal.
"""
