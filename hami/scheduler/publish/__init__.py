"""What the service writes into the cluster beside bindings: status, labels, keys, events.

Quota status, the leader's label, public keys and the Secret of the signing keys, and problems told
to their owners. Each writer reads the state and owns its own pace. Evictions are in ``reclaim``.
"""
