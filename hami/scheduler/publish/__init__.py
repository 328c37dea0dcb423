"""What the service writes into the cluster beside bindings: status, labels, keys, events.

Inside: quota status, the leader's label, public keys and the Secret of the signing keys, and events
about problems. Each writer reads the state and keeps its own pace. Evictions are in ``reclaim``.
"""
