"""Kubernetes' objects as we read them, and what their texts mean: quantities, selectors, taints.

No I/O. Not here: how objects are fetched (``hami.kube``), and what we ask of devices.
"""
