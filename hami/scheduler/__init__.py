"""The scheduler service: extender, webhook, metrics, read-only API.

One process, one asyncio loop. ``state.ClusterState`` owns what is known of the cluster and is
touched from the loop alone; decisions are made by ``hami.policy``; Kubernetes is reached through
``hami.kube``.
"""
