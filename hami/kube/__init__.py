"""The Kubernetes adapter: client, informers, leases, events, node lock.

Knows Kubernetes and nothing of devices. Everything here may do I/O; what it hands on are the lean
structs of ``hami.domain.kubernetes.objects``.
"""
